"""The findings about the gateway's surroundings: the sockets and directories that it needs and can't reach."""

from __future__ import annotations

from collections.abc import Iterator

from dpgateway.preflight.values import Finding, Site

# SELinux doesn't let container_t, the type of containers that ask for none, connect to the kubelet (container-selinux
# 2.250, container.te).
_SELINUX = (
    "give the pod another SELinux type: podSecurityContext.seLinuxOptions.type, spc_t or container_device_plugin_t; "
    "`ausearch -m avc` on the node names what is denied"
)


def findings(site: Site) -> Iterator[Finding]:
    """The obstacles. A denied path may exist, so absence is another finding."""
    if site.no_kubelet:
        advice = "start the kubelet, or mount the host's directory: kubelets have it here whatever their --root-dir is"
        yield Finding("loss", "kubelet-absent", site.no_kubelet, advice)
    if site.denied:
        whom = f"SELinux type {site.selinux}" if site.selinux else "this process"
        text = f"{whom} has no access to {' and '.join(site.denied)}"
        advice = "run as root, and look for an AppArmor profile or another security module"
        yield Finding("loss", "access-denied", text, _SELINUX if site.selinux else advice)
    if site.read_only:
        text = f"the file system is read-only at {' and '.join(site.read_only)}, where the gateway must write"
        yield Finding("loss", "read-only", text, "mount the host's directory there, writable")
    if site.not_its_root:
        elsewhere = f"; found a kubelet at {' and '.join(site.roots)}" if site.roots else ""
        advice = "set kubeletDir in the chart's values, or kubelet.pod_resources_socket in the configuration"
        text = f"the kubelet's --root-dir is another one: {site.not_its_root}{elsewhere}"
        yield Finding("loss", "root-dir-elsewhere", text, advice)
    if site.no_runtime:
        text = f"no container runtime answers at {site.no_runtime}"
        advice = "set runtimeSocket in the chart's values, or runtime.socket in the configuration, to the kubelet's"
        if site.runtimes:
            found = " and ".join(site.runtimes)
            yield Finding("unknown", "runtime-elsewhere", f"{text}, but there is a socket at {found}", advice)
        else:  # as in a container, which sees no other directory than the configured socket's
            yield Finding("unknown", "runtime-absent", text, advice)

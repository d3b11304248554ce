"""What a gateway doesn't reach, as findings."""

import pytest

from dpgateway.preflight import Site
from dpgateway.preflight.site import findings

DENIED = ("/var/lib/kubelet/device-plugins/kubelet.sock",)


def test_nothing_is_in_the_way():
    assert list(findings(Site(selinux="spc_t", roots=("/elsewhere",)))) == []


@pytest.mark.parametrize(
    ("site", "level", "code", "named"),
    [
        (Site(no_kubelet="it has no kubelet.sock"), "loss", "kubelet-absent", "it has no kubelet.sock"),
        (Site(denied=DENIED, selinux="container_t"), "loss", "access-denied", "SELinux type container_t"),
        (Site(denied=DENIED), "loss", "access-denied", "this process has no access to /var/lib/kubelet"),
        (Site(read_only=("/var/lib/dpgateway",)), "loss", "read-only", "/var/lib/dpgateway"),
        (Site(not_its_root="no pod", roots=("/k0s",)), "loss", "root-dir-elsewhere", "found a kubelet at /k0s"),
        (Site(no_runtime="/a", runtimes=("/b",)), "unknown", "runtime-elsewhere", "at /a, but there is a socket at /b"),
        (Site(no_runtime="/a"), "unknown", "runtime-absent", "no container runtime answers at /a"),
    ],
    ids=["no kubelet", "SELinux", "another security module", "read-only", "root", "another runtime", "no runtime"],
)
def test_each_mistake_has_a_remedy(site, level, code, named):
    (one,) = findings(site)
    assert (one.level, one.code, bool(one.advice)) == (level, code, True)
    assert named in one.text
    assert ("seLinuxOptions" in one.advice) == bool(site.selinux)

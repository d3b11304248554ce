"""What containerd, the kubelet and the machine they see are told."""

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import randrange
from typing import Any

from tests.real_kubelet.node.image import IMAGE

# A kubelet sets these at its start. It finds the values in files of ours, and leaves the machine alone.
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}

# restrict_oom_score_adj and the hugetlb lines: containers of test machines lack the capability and the controller.
# container_annotations: the OCI spec shows what the CRI was given; no asterisk matches a slash.
CONTAINERD = """\
version = 2
root = "{root}/containerd"
state = "{root}/containerd-state"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{root}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  enable_cdi = true
  cdi_spec_dirs = ["{root}/cdi"]
  restrict_oom_score_adj = true
  disable_tcp_service = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      container_annotations = ["*", "*/*"]
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{root}/cni"
    bin_dir = "{root}/cni"
"""


def containerd(root: Path) -> str:
    return CONTAINERD.format(root=root, image=IMAGE)


def kubelet(root: Path, ports: tuple[int, int], changes: Mapping[str, Any]) -> str:
    """Static pods and no API server; best-effort topology; nothing that needs a cgroup tree of its own or evicts."""
    port, read_only_port = ports
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": port,
            "readOnlyPort": read_only_port,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "staticPodPath": str(root / "shown"),
            "podLogsDir": str(root / "logs"),
            "volumePluginDir": str(root / "volume-plugins"),
            "containerRuntimeEndpoint": f"unix://{root}/containerd.sock",
            "topologyManagerPolicy": "best-effort",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "maxOpenFiles": 65536,
            "makeIPTablesUtilChains": False,
            "protectKernelDefaults": False,
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "syncFrequency": "2s",
            "fileCheckFrequency": "100ms",
            **changes,
        },
        indent=1,
    )


def write_sysctls(folder: Path) -> Iterator[tuple[Path, str]]:
    for name, value in SYSCTLS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
        yield path, f"/proc/sys/{name}"


def write_numa(folder: Path, nodes: int) -> tuple[Path, str]:
    """A /sys/devices/system/node with the machine's processors dealt out to `nodes` nodes."""
    real = Path("/sys/devices/system/node")
    processors = sorted(path.name for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*"))
    for number in range(nodes):
        node = folder / f"node{number}"
        node.mkdir(parents=True)
        meminfo = (real / "node0" / "meminfo").read_text()
        (node / "meminfo").write_text(meminfo.replace("Node 0", f"Node {number}"))
        (node / "distance").write_text(" ".join("10" if other == number else "20" for other in range(nodes)) + "\n")
        for processor in processors[number::nodes]:
            (node / processor).symlink_to(f"../../cpu/{processor}")
    (folder / "online").write_text(f"0-{nodes - 1}\n")
    return folder, str(real)


def cgroup_mounts() -> list[str]:
    """Commands that mount the cgroup hierarchies, where the machine hasn't."""
    if Path("/sys/fs/cgroup").is_mount():
        return []
    rows = [line.split() for line in Path("/proc/cgroups").read_text().splitlines()[1:]]
    v1 = [name for name, hierarchy, _, enabled in rows if hierarchy != "0" and enabled == "1"]
    if not v1:
        return ["mount -t cgroup2 cgroup2 /sys/fs/cgroup"]
    root = "/sys/fs/cgroup"
    each = [f"mkdir {root}/{name} && mount -t cgroup -o {name} cgroup {root}/{name}" for name in v1]
    return [f"mount -t tmpfs tmpfs {root}", *each]


def free_port() -> int:
    """Below the range that outgoing connections take theirs from, so that it stays free while the kubelet is down."""
    while True:
        port = randrange(20000, 30000)  # noqa: S311 - no secret
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port

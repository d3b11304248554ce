"""A node: containerd and a kubelet of a chosen release, with a /dev, /run, /etc and /var/lib of its own.

Its paths are kubeadm's, or those of another distribution.
"""

import json
import os
import signal
import socket
import stat
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.build import KUBELETS
from tests.cluster.machine.box import Box, ClusterError, until
from tests.cluster.machine.control import Control
from tests.real_kubelet.node.image import IMAGE
from tests.real_kubelet.node.settings import cgroup_mounts, write_sysctls
from tests.real_kubelet.programs import CONTAINERD

DEVICES = {"null": "1 3", "zero": "1 5", "full": "1 7", "random": "1 8", "urandom": "1 9"}
DEVICES |= {"kmsg": "1 11", "tty": "5 0", "fuse": "10 229"}
DEV = [
    "mount -t tmpfs -o mode=755 tmpfs /dev",
    *(f"mknod -m 666 /dev/{name} c {numbers}" for name, numbers in DEVICES.items()),
    "mkdir /dev/pts /dev/shm /dev/mqueue",
    "mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts",
    "ln -s pts/ptmx /dev/ptmx; ln -s /proc/self/fd /dev/fd",
    "ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr",
    "mount -t tmpfs tmpfs /dev/shm; mount -t mqueue mqueue /dev/mqueue",
]
NO_CRI = "validate CRI v1 runtime API"
"""Among a kubelet's last words if containerd listens and its CRI doesn't serve yet."""
KUBELET = "/var/lib/kubelet"
"""The kubelet has its device-plugins directory here, whatever its --root-dir is: a constant of Kubernetes."""
BINDS = {"/var/lib/containerd": "containerd-root", "/var/log": "logs"}
LAYERS = {"etc": "/etc", "lib": "/var/lib"}
"""The node writes into layers of its own over the machine's."""
CONTAINERD_CONFIG = """\
version = 2
state = "{state}"
disabled_plugins = [{disabled}]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  {cdi}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "/run/cni"
    bin_dir = "/usr/lib/cni"
"""


@dataclass(frozen=True)
class Paths:
    """What distributions have in places of their own; the defaults are kubeadm's."""

    root_dir: str = KUBELET
    """The kubelet's."""
    socket: str = "/run/containerd/containerd.sock"
    """containerd's."""
    state: str = "/run/containerd"
    """The directory of containerd's containers that run."""


KUBEADM = Paths()


class Node(Box):
    """`release`: of the kubelet. `own_containerd`: containerd 2, else Debian's 1.6. `number` is in its addresses."""

    def __init__(
        self,
        control: Control,
        name: str,
        number: int,
        release: str,
        *,
        own_containerd: bool,
        paths: Paths = KUBEADM,
    ) -> None:
        super().__init__(control.folder.parent / "nodes" / name, name)
        self.release = release
        self._control, self._number, self._own_containerd = control, number, own_containerd
        self._address, self._pods = f"{control.net}.0.{10 + number}", f"{control.net}.{number}.0/24"
        self._bin = CONTAINERD.directory if own_containerd else Path("/usr/bin")
        self._cgroup = f"dpgateway-{control.net}-{name}"
        self._paths = paths
        self._binds = BINDS | {KUBELET: "device-manager"} | {paths.root_dir: "kubelet"}
        self.device_plugins_dir = self.folder / self._binds[KUBELET] / "device-plugins"

    def up(self) -> None:
        """Switches the node on, as at a boot; returns when its kubelet is healthy. Only files on its disk are old."""
        self._power_on()
        self._start_containerd()
        self.start_kubelet(self.release)

    def power_off(self) -> None:
        """Everything on it ends at once; files on its disk stay."""
        self.close()
        for folder in self.cgroups:
            _remove_cgroup(folder)

    def start_kubelet(self, release: str) -> None:
        """Returns when it is healthy, takes registrations, and knows the pods that the node has."""
        self.release = release
        config = self.folder / "kubelet.json"
        config.write_text(json.dumps(self._kubelet_config()))
        for folder in self.cgroups:
            folder.mkdir(exist_ok=True)
            if folder.parent.name == "cpuset":
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (folder / name).write_text((folder.parent / name).read_text())
        own = self._control.pki.kubeconfig(self.name, f"system:node:{self.name}", "system:nodes")
        names = [f"--hostname-override={self.name}", f"--node-ip={self._address}"]
        root = self._paths.root_dir
        directories = [f"--root-dir={root}", f"--cert-dir={root}/pki"]
        program = KUBELETS[release].binary()
        argv = [program, f"--config={config}", f"--kubeconfig={own}", *names, *directories, "--v=2"]
        start = partial(self.spawn, "kubelet", argv)
        start()
        until(f"healthy kubelet of {self.name}", partial(self._kubelet_is_healthy, start))
        until(f"pods at the kubelet of {self.name}", self._kubelet_knows_its_pods)

    def stop_kubelet(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the kubelet alone; pods go on."""
        self.end("kubelet", number)

    def load(self, image: Path) -> None:
        local = ["--local"] if self._own_containerd else []
        self.ctr("images", "import", *local, "--snapshotter", "overlayfs", image)

    def ctr(self, *argv: object) -> str:
        return self.run(self._bin / "ctr", "--address", self._paths.socket, "--namespace", "k8s.io", *argv)

    def object(self) -> Any:
        return self._control.api("GET", f"/api/v1/nodes/{self.name}")

    def has_none_of(self, pods: set[str]) -> bool:
        """Whether its kubelet has a directory for none of these uids."""
        return pods.isdisjoint(path.name for path in (self.folder / "kubelet" / "pods").iterdir())

    def ready(self) -> bool:
        conditions = (self.object() or {}).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def allocatable(self, resource: str) -> int | None:
        """How many the scheduler may hand out on this node; None when the node object doesn't name the resource."""
        count = self.object()["status"].get("allocatable", {}).get(resource)
        return None if count is None else int(count)

    def _power_on(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        boot = self.folder / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n")  # by this a kubelet knows that the machine was restarted
        layers = []
        for name, point in LAYERS.items():
            upper, work = self.folder / name, self.folder / f"{name}-work"
            if not upper.exists():
                upper.mkdir()
                work.mkdir()
                os.mknod(upper / "dpgateway", stat.S_IFCHR)  # overlayfs hides what the machine's own gateway has kept
            layers.append(f"mount -t overlay -o lowerdir={point},upperdir={upper},workdir={work} overlay {point}")
        for name in self._binds.values():
            (self.folder / name).mkdir(exist_ok=True)
        own = {self.folder / name: point for point, name in self._binds.items()}
        files = dict(write_sysctls(self.folder / "sysctl")) | {boot: "/proc/sys/kernel/random/boot_id"}
        self.open(
            [
                *cgroup_mounts(),
                *layers,
                f"mkdir -p {' '.join(self._binds)}",
                *(f"mount --bind {source} {target}" for source, target in (own | files).items()),
                "mount -t tmpfs -o mode=755 tmpfs /run",
                "mkdir -p /run/cni /run/netns /run/lock /run/udev",
                f"echo {uuid.uuid5(uuid.NAMESPACE_DNS, self.name).hex} >/etc/machine-id",
                *DEV,
            ]
        )
        self._control.plug(self, self._address)
        self._control.run("ip", "route", "replace", self._pods, "via", self._address)
        routes = {"routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": self._pods}]]}
        ipam = {"type": "host-local", "dataDir": "/run/cni/addresses", **routes}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
        cni = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        self.run("sh", "-c", "cat >/run/cni/10-pods.conflist", input=json.dumps(cni))

    def _start_containerd(self) -> None:
        changes = {"pause": IMAGE, "disabled": "", "cdi": "", "socket": self._paths.socket, "state": self._paths.state}
        if self._own_containerd:
            changes |= {"disabled": '"io.containerd.nri.v1.nri"', "cdi": "enable_cdi = true"}
        config = self.folder / "containerd.toml"
        config.write_text(CONTAINERD_CONFIG.format(**changes))
        path = f"{self._bin}:{os.environ['PATH']}:/usr/sbin:/sbin"  # its shim is beside it
        self.spawn("containerd", [self._bin / "containerd", "--config", config], {"PATH": path})
        until(f"answer of containerd on {self.name}", self._containerd_answers)

    def _containerd_answers(self) -> bool:
        self.check_running("containerd")
        with socket.socket(socket.AF_UNIX) as connection:
            return not connection.connect_ex(f"/proc/{self.pid}/root{self._paths.socket}")

    def _kubelet_is_healthy(self, start_again: Callable[[], None]) -> bool:
        if self.has_ended("kubelet"):
            if NO_CRI not in self.log("kubelet").rstrip().rpartition("\n")[2]:
                self.check_running("kubelet")
            start_again()  # as systemd does
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(str(self.device_plugins_dir / "kubelet.sock")):
                return False
        try:
            with urllib.request.urlopen(f"http://{self._address}:10248/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _kubelet_knows_its_pods(self) -> bool:
        """Until then it refuses exec, and counts what deleted pods had: a new pod may be refused."""
        wanted = self._uids(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}")
        try:
            return not wanted or wanted <= self._uids(f"/api/v1/nodes/{self.name}/proxy/pods")
        except ClusterError:  # the API server can't reach it yet
            return False

    def _uids(self, path: str) -> set[str]:
        """Of the pods there that stay."""
        found = (self._control.api("GET", path) or {}).get("items") or ()
        return {one["metadata"]["uid"] for one in found if "deletionTimestamp" not in one["metadata"]}

    def _kubelet_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._control.pki["ca.crt"])},
            },
            "authorization": {"mode": "Webhook"},
            "healthzBindAddress": "0.0.0.0",  # noqa: S104  its network is of its own
            "containerRuntimeEndpoint": f"unix://{self._paths.socket}",
            "volumePluginDir": "/run/volume-plugins",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "maxOpenFiles": 65536,
            "makeIPTablesUtilChains": False,
            "serializeImagePulls": False,
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "1s",  # by default a new count is in the node object within 10 s
            "nodeStatusReportFrequency": "5m",  # the default, unless the one above is set: one without any change
            "syncFrequency": "5s",  # a changed ConfigMap is in its pods within that, and not within 1 min
        }

    @property
    def cgroups(self) -> Iterator[Path]:
        """The cgroup of its pods, in each hierarchy."""
        for top in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
            if (top / "cgroup.procs").exists():
                yield top / self._cgroup

    @property
    def cgroup(self) -> Path:
        """One of them that has all its processes: under v1 the one of v2 has none."""
        return next(one for one in self.cgroups if one.parent.name in {"cgroup", "pids"})


def _remove_cgroup(folder: Path) -> None:
    """From the innermost on. A process that has just ended keeps its cgroup busy for a moment."""
    inner = sorted(folder.glob("**/"), key=lambda path: len(path.parts), reverse=True)

    def gone(path: Path) -> bool:
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            time.sleep(0.02)
            return False
        return True

    for path in inner:
        until(f"end of {path}", partial(gone, path))

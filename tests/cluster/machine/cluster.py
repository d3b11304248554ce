"""A real, small Kubernetes cluster on this machine: a control plane, and nodes with kubelets of chosen releases."""

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.machine.box import ClusterError, is_first, run, until
from tests.cluster.machine.control import MERGE, Control
from tests.cluster.machine.node import KUBEADM, Node, Paths
from tests.real_kubelet.node.image import write_image

PODS = "/api/v1/namespaces/default/pods"
RETRIED = 180.0
"""Seconds in which a kubelet ends a pod: it retries what fails, such as to unmount a volume, with up to two minutes
between (pkg/volume/util/nestedpendingoperations)."""

WAIT = "mkfifo /tmp/end; read code </tmp/end; exit $code"
WAITS = ["sh", "-c", WAIT]
"""A container's command. It ignores SIGTERM, as the first process, and ends once it is told its exit code."""

NETS = tuple(f"10.{number}" for number in range(88, 100))
"""The first two numbers of every address of a cluster."""


class Cluster:
    """`nodes`: the kubelet's release of each, and whether it has containerd 2. `paths`: of those that have others than
    kubeadm's. It lives in a folder that it removes.
    """

    def __init__(self, nodes: Mapping[str, tuple[str, bool]], paths: Mapping[str, Paths] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cluster-"))
        self.folder.chmod(0o755)  # mounts of the nodes' files are made in it
        self._claim, net = free_net()
        self.control = Control(self.folder / "control", net)
        others = paths or {}
        self.nodes = {
            name: Node(self.control, name, number, release, own_containerd=own, paths=others.get(name, KUBEADM))
            for number, (name, (release, own)) in enumerate(nodes.items(), 1)
        }

    def up(self) -> None:
        """Returns when all nodes are Ready, and pods can be made."""
        try:
            self.control.up()
            image = self.folder / "busybox.tar"
            write_image(image)
            self.on_each(Node.up)
            self.load(image)
            until("Ready of all nodes", lambda: all(node.ready() for node in self.nodes.values()))
            for namespace in ("default", "kube-system"):
                account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
                until(f"service account of {namespace}", partial(self.control.api, "GET", account))
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Ends everything, and removes all files."""
        self.on_each(Node.power_off)
        self.control.close()
        self._claim.close()
        shutil.rmtree(self.folder)

    def load(self, image: Path) -> None:
        """Every node has the archive's image then."""
        self.on_each(lambda node: node.load(image))

    def on_each(self, do: Callable[[Node], object]) -> None:
        """Does it on all nodes at once, because they mostly wait."""
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(do, self.nodes.values()))

    def kubectl(self, *argv: object, **more: object) -> str:
        return self._client("kubectl", *argv, **more)

    def helm(self, *argv: object, **more: object) -> str:
        return self._client("helm", *argv, **more)

    def _client(self, name: str, *argv: object, **more: object) -> str:
        own = {"KUBECONFIG": str(self.control.pki["admin.kubeconfig"]), "HELM_CACHE_HOME": str(self.folder / "helm")}
        return run(self.control.bin / name, *argv, env={**os.environ, **own}, **more)

    def create(self, pod: object) -> None:
        """A new pod in the namespace default; kubectl would take ten times as long."""
        self.control.api("POST", PODS, pod)

    def delete(self, *names: str) -> set[str]:
        """Deletes these pods, or all, at once. Returns their uids, because their kubelets still have them."""
        found = [one["metadata"] for one in self.control.api("GET", PODS)["items"]]
        wanted = [one for one in found if one["name"] in names or not names]
        for one in wanted:
            self.control.api("DELETE", f"{PODS}/{one['name']}?gracePeriodSeconds=0")
        return {one["uid"] for one in wanted}

    def until_gone(self, uids: set[str]) -> None:
        """Until the kubelets have nothing of these pods any more, and so may give away what they had."""
        for node in self.nodes.values():
            try:
                until(f"end of the pods on {node.name}", partial(node.has_none_of, uids), RETRIED)
            except ClusterError as error:
                said = [line for line in node.log("kubelet").splitlines() if any(uid in line for uid in uids)]
                raise ClusterError("\n".join([str(error), "its kubelet said last:", *said[-20:]])) from None

    def label(self, labels: Mapping[str, str | None], *nodes: str) -> None:
        """Labels these nodes, or all; None takes a label away."""
        for name in nodes or self.nodes:
            self.control.api("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}}, MERGE)

    def pod(self, name: str, namespace: str = "default") -> Any:
        return self.control.api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def wait_for_pod(self, name: str, namespace: str = "default", phase: str = "Running") -> Any:
        """Returns the pod in this phase; a running one is ready, too."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.update(self.pod(name, namespace) or {})
            status = seen.get("status", {})
            ready = all(one.get("ready") for one in status.get("containerStatuses", []))
            return bool(status.get("phase") == phase and (phase != "Running" or ready))

        try:
            until(f"pod {name} {phase}", there)
        except ClusterError as error:
            raise ClusterError(f"{error}; last seen: {json.dumps(seen.get('status'))}") from None
        return seen

    def process(self, name: str, of: str = "") -> Path:
        """The first process of a container, in /proc, once its pod runs. `of`: its name, where the pod has more."""
        found = self.wait_for_pod(name)
        statuses = found["status"]["containerStatuses"]
        (id_,) = (one["containerID"].rpartition("/")[2] for one in statuses if one["name"] == (of or one["name"]))

        def first() -> Path | None:
            with contextlib.suppress(OSError, StopIteration):  # one of its processes has just ended
                procs = next(self.nodes[found["spec"]["nodeName"]].cgroup.rglob(f"{id_}/cgroup.procs"))
                one = Path("/proc", str(next(filter(is_first, map(int, procs.read_text().split())))))
                return None if (one / "comm").read_text().startswith("runc") else one  # before it is the container's
            return None

        return until(f"process of {name}", first)

    def environment(self, name: str, of: str = "") -> dict[str, str]:
        """The variables of a container's first process, once its pod runs; kubectl exec would take a second."""
        words = (self.process(name, of) / "environ").read_bytes().decode(errors="replace").split("\0")
        return dict(one.split("=", 1) for one in words if "=" in one)

    def end(self, name: str, code: int = 0) -> None:
        """Ends the container of a pod, whose command is WAITS."""
        file = self.process(name) / "root/tmp/end"
        until(f"a command of {name} that waits", file.exists)
        file.write_text(f"{code}\n")

    def given(self, name: str, prefix: str, of: str = "") -> set[str]:
        """What a container's variables with this prefix say that it has, once its pod runs."""
        found = self.environment(name, of)
        return {key.removeprefix(f"{prefix}_") for key in found if key.startswith(f"{prefix}_")}


def free_net() -> tuple[socket.socket, str]:
    """Addresses that no other cluster of this machine has while the socket is open. It ends with its process."""
    claim = socket.socket(socket.AF_UNIX)
    for net in NETS:
        try:
            claim.bind(f"\0dpgateway-cluster-{net}")
        except OSError:
            continue
        return claim, net
    raise ClusterError(f"all of {NETS[0]} to {NETS[-1]} have a cluster already")

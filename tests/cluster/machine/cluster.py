"""A real, small Kubernetes cluster on this machine: a control plane, and nodes with kubelets of chosen releases."""

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

from tests.cluster.machine.box import ClusterError, run, until
from tests.cluster.machine.control import Control
from tests.cluster.machine.node import KUBEADM, Node, Paths
from tests.real_kubelet.node.image import write_image

PODS = "/api/v1/namespaces/default/pods"

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
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            until("service account", lambda: self.control.api("GET", account))
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
            until(f"end of the pods on {node.name}", partial(node.has_none_of, uids))

    def pod(self, name: str, namespace: str = "default") -> Any:
        return self.control.api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def wait_for_pod(self, name: str, namespace: str = "default", phase: str = "Running") -> Any:
        """Returns the pod in this phase; a running one is ready, too."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.update((self.pod(name, namespace) or {}).get("status", {}))
            ready = all(one.get("ready") for one in seen.get("containerStatuses", []))
            return seen.get("phase") == phase and (phase != "Running" or ready)

        try:
            until(f"pod {name} {phase}", there)
        except ClusterError as error:
            raise ClusterError(f"{error}; last seen: {json.dumps(seen)}") from None
        return self.pod(name, namespace)


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

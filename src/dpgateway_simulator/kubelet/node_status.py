"""The Node object, which the kubelet makes and keeps up to date (pkg/kubelet/kubelet_node_status.go)."""

from dpgateway_simulator.kubelet import status
from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.incarnation import Incarnation


class NodeStatus:
    """Writes what the node has every ten seconds, so the scheduler learns of a change up to that much later."""

    def __init__(self, incarnation: Incarnation, node: ClusterNode, connections: PluginConnections) -> None:
        self._incarnation, self._node, self._connections = incarnation, node, connections

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._node.api_back()
            self.write()
            await self._incarnation.sleep(self._node.pauses.status)

    def write(self) -> None:
        """Raises ApiAwayError."""
        store, name = self._node.api(), self._node.name
        if self._node.find("nodes", name) is None:
            labels = {"kubernetes.io/hostname": name}
            store.create(
                "nodes", "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            )
        counts = status.capacity(self._incarnation, self._connections)
        found = {kind: {one: str(n) for one, n in counts[kind].items()} for kind in ("capacity", "allocatable")}
        version = self._incarnation.behaviour.version
        found["nodeInfo"] = {
            "kubeletVersion": f"v{version if version.count('.') == 2 else f'{version}.0'}",
            "containerRuntimeVersion": self._node.runtime,
            "bootID": self._node.boot,
        }
        conditions = [{"type": "Ready", "status": "True"}]
        store.update(("nodes", "", name), lambda one: one.update({"status": {**found, "conditions": conditions}}))

"""The Node object, which the kubelet makes and keeps up to date (pkg/kubelet/kubelet_node_status.go)."""

from operator import methodcaller

from dpgateway_simulator.apiserver import Object
from dpgateway_simulator.kubelet import status
from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.incarnation import Incarnation


async def keep_node(incarnation: Incarnation, node: ClusterNode, connections: PluginConnections) -> None:
    """Writes what the node has every ten seconds, so the scheduler learns of a change up to that much later; never
    returns.
    """
    version = incarnation.behaviour.version
    while True:
        store = await node.api_back()
        if node.find("nodes", node.name) is None:
            metadata = {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}}
            store.create("nodes", "", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        counts = status.capacity(incarnation, connections)
        found: Object = {kind: {one: str(n) for one, n in counts[kind].items()} for kind in ("capacity", "allocatable")}
        found["nodeInfo"] = {
            "kubeletVersion": f"v{version if version.count('.') == 2 else f'{version}.0'}",
            "containerRuntimeVersion": "containerd://2.4.2" if node.cdi else "containerd://1.6.20",
            "bootID": node.boot,
        }
        found["conditions"] = [{"type": "Ready", "status": "True"}]
        store.update(("nodes", "", node.name), methodcaller("update", {"status": found}))
        await incarnation.sleep(node.pauses.status)

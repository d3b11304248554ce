"""What a kubelet does for a cluster: the API server's pods, claims and their drivers, the Node object. Its composition.

A kubelet of no cluster has none of it: its pods are admitted by the caller.
"""

from pathlib import Path

from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.dra.claims import ClaimManager
from dpgateway_simulator.kubelet.dra.containers import ClaimedDevices
from dpgateway_simulator.kubelet.dra.drivers import DraDrivers
from dpgateway_simulator.kubelet.dra.registry import PluginRegistry
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.node_status import keep_node
from dpgateway_simulator.kubelet.pod_workers import PodWorkers
from dpgateway_simulator.kubelet.workload import Workload


class ClusterSide:
    """The parts of one incarnation. `node` and `workload` are its node and its pods."""

    def __init__(
        self,
        incarnation: Incarnation,
        root: Path,
        node: ClusterNode,
        connections: PluginConnections,
        workload: Workload,
    ) -> None:
        self._incarnation, self._node, self._connections = incarnation, node, connections
        self.drivers = DraDrivers(incarnation, root, node)
        self.claims = ClaimManager(incarnation, root, node, self.drivers)
        self.devices = workload.claimed = ClaimedDevices(node, self.claims, self.drivers.health)
        self.workers = PodWorkers(incarnation, node, workload, self.claims, self.devices)
        self._registry = PluginRegistry(incarnation, root, node, self.drivers)
        self.drivers.health.changed = self._health_changed
        incarnation.at_end(self.drivers.close)

    def start(self) -> None:
        """Begins all but the pods."""
        tasks, behaviour = self._incarnation.tasks, self._incarnation.behaviour
        tasks.spawn("kubelet: node status", keep_node(self._incarnation, self._node, self._connections))
        if behaviour.registry:
            tasks.spawn("kubelet: plugins", self._registry.run())
        if behaviour.dra != "none":
            self.claims.load()
            tasks.spawn("kubelet: first wipe", self.drivers.wipe(self._node.pauses.first_wipe))
            tasks.spawn("kubelet: claims", self.workers.reconcile())
            tasks.spawn("kubelet: health", self._sync())

    def _health_changed(self) -> None:
        if not self._incarnation.ended:
            self._incarnation.tasks.spawn("kubelet: health of pods", self.workers.write_health())

    async def _sync(self) -> None:
        """What was said of a device becomes too old without anybody saying so; never returns."""
        while True:
            await self._incarnation.sleep(self._node.pauses.health)
            await self.workers.write_health()

"""Pod admission and container start, in the order of each release.

Allocate is called at the start of each container in 1.8; for the whole pod at its admission in 1.9 to 1.17
(lifecycle/predicate.go); from 1.18 on container by container, after the topology manager
(cm/topologymanager/scope*.go). From 1.9 on the general predicate ends an admission.

Two caches live as long as the incarnation. `_affinities` contains the topology manager's choice, keyed by (pod,
container). `_reusable` contains the devices that init containers leave to later containers, for the pod admitted last
only, as the kubelet's devicesToReuse.
"""

from collections.abc import Mapping

from dpgateway_simulator.kubelet import pods, starting, status, topology
from dpgateway_simulator.kubelet.allocation import Allocator, Reusable
from dpgateway_simulator.kubelet.choice import Request
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.errors import AllocationError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.pods import Pod, PodContainer


class PodRefusedError(Exception):
    """The pod fails for good. `reason` is its status.reason, the error's text its status.message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Admission:
    """The admissions of one incarnation. `pods`: every active pod by name, including the one being admitted."""

    def __init__(self, incarnation: Incarnation, connections: PluginConnections, pods: Mapping[str, Pod]) -> None:
        self._incarnation, self._connections, self._pods = incarnation, connections, pods
        self._behaviour, self._ledger = incarnation.behaviour, incarnation.ledger
        self._allocator = Allocator(incarnation, connections, pods.keys)
        self._policy = incarnation.node.policy if self._behaviour.topology_policies else "none"
        self._affinities: dict[tuple[str, str], frozenset[int] | None] = {}
        self._reusable: dict[str, Reusable] = {}

    async def admit(self, pod: Pod) -> None:
        """Raises PodRefusedError."""
        try:
            match self._behaviour.allocates:
                case "start":
                    return
                case "pod":
                    await self._allocate_all(pod)
                case "container":
                    for container in pod.all:
                        if self._policy != "none":
                            self._place(pod, container)
                        await self._allocate_one(pod, container)
        except AllocationError as error:
            message = self._behaviour.admission_error.format(error)
            raise PodRefusedError("UnexpectedAdmissionError", message) from error

        # The general predicate comes last, so a refused pod's plugins have been called already.
        others = [one for name, one in self._pods.items() if name != pod.name]
        counts = status.capacity(self._incarnation, self._connections)["allocatable"]
        node = pods.allocatable(self._ledger, counts, pod.name)
        short = pods.short_of(pod, others, node, missing_is_fine=self._behaviour.ignores_unknown)
        if short is not None:
            raise PodRefusedError(f"OutOf{short[0]}", short[1])

    async def start(self, pod: Pod, container: PodContainer) -> starting.RunOptions | None:
        """The options that the container runs with; None without devices. Raises AllocationError."""
        if self._behaviour.allocates == "start":
            if self._ledger.keep_only(self._pods):  # 1.8 frees devices without waiting for the pod sources
                self._ledger.recount()
            return await starting.allocate(self._incarnation, self._connections, pod, container)

        # GetDeviceRunContainerOptions: PreStartContainer runs at every start, per resource, before the missing
        # holdings are noticed.
        again = False
        for resource, number in container.resources.items():
            if not self._ledger.is_plugin_resource(resource) or not (number or self._behaviour.zero_pre_starts):
                continue
            if self._behaviour.pre_start:
                request = Request(pod.name, container.name, resource, number)
                await starting.pre_start(self._incarnation, self._connections, request)
            again |= self._ledger.held(pod.name, container.name, resource) is None

        # A plugin that registered after the pod's admission leaves the container without holdings.
        if again:
            await self._reallocate(pod, container)
        holdings = self._ledger.of_container(pod.name, container.name)
        answers = [one.answer for one in holdings if one.answer is not None]
        return starting.merged(self._behaviour, answers, f"{pod.name}-{container.name}") if holdings else None

    async def _allocate_all(self, pod: Pod) -> None:
        reusable: Reusable = {}
        for container in pod.all:
            await self._allocator.allocate(pod, container, reusable, None)

    async def _allocate_one(self, pod: Pod, container: PodContainer) -> None:
        self._reusable = {pod.name: self._reusable.get(pod.name, {})}
        affinity = self._affinities.get((pod.name, container.name))
        await self._allocator.allocate(pod, container, self._reusable[pod.name], affinity)

    async def _reallocate(self, pod: Pod, container: PodContainer) -> None:
        """Allocates again for a container without holdings; the kubelet's comment calls it a race at node restart."""
        if self._behaviour.reallocates == "pod":
            try:
                await self._allocate_all(pod)
            except AllocationError as error:  # 1.12 to 1.17 ignore it
                self._incarnation.emit("allocate failed", pod=pod.name, reason=str(error))
        elif self._behaviour.reallocates == "container" and pod.name in self._pods:
            await self._allocate_one(pod, container)

    def _place(self, pod: Pod, container: PodContainer) -> None:
        """The topology manager's decision for one container."""
        # Hints count free devices, so terminated pods' devices are freed first.
        self._allocator.collect()
        numa, crashes = self._incarnation.node.numa, self._behaviour.vanished_crashes
        try:
            hints = [
                topology.hints(self._candidates(pod, container, resource, number), numa, missing_crashes=crashes)
                for resource, number in container.resources.items()
                if self._ledger.is_plugin_resource(resource)
            ]
        except topology.MissingDeviceError:
            where = "devicemanager.(*ManagerImpl).generateDeviceTopologyHints"
            raise self._incarnation.nil_pointer(where) from None
        affinity, admitted = topology.merge(self._policy, hints, numa)
        if not admitted:
            raise PodRefusedError("TopologyAffinityError", topology.NO_LOCALITY)
        self._affinities[pod.name, container.name] = affinity

    def _candidates(self, pod: Pod, container: PodContainer, resource: str, number: int) -> topology.Candidates:
        nodes = {device.id: device.nodes for device in self._ledger.known.get(resource, {}).values()}

        # A container that is admitted again (kubelet restart) can only get its own devices.
        held = frozenset(self._ledger.held(pod.name, container.name, resource) or ())
        if held:
            return topology.Candidates(nodes, held, frozenset(), number, possible=len(held) == number)
        available = frozenset(self._ledger.available(resource))
        reusable = frozenset(self._reusable.get(pod.name, {}).get(resource, ()))
        return topology.Candidates(nodes, available, reusable, number, possible=len(available | reusable) >= number)

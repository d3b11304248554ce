"""Admitting pods and starting containers: the order of things in each release.

1.8 asks a plugin when a container starts; 1.9 to 1.17 for the whole pod when it is admitted
(lifecycle/predicate.go); from 1.18 on container by container, after
the topology manager (cm/topologymanager/scope*.go).
"""

from collections.abc import Mapping, Sequence

from dpgateway_simulator.kubelet import predicate, starting, status, topology
from dpgateway_simulator.kubelet.allocation import Allocator, Reusable
from dpgateway_simulator.kubelet.connections import Connections
from dpgateway_simulator.kubelet.endpoint import nil_pointer
from dpgateway_simulator.kubelet.errors import AllocationError
from dpgateway_simulator.kubelet.incarnation import Life
from dpgateway_simulator.kubelet.pods import Container, Pod


class PodRefusedError(Exception):
    """The pod fails, for good; `reason` is its status.reason, the text its status.message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Admission:
    """The pods of one life. `pods` are those that the kubelet has, the one in question included."""

    def __init__(
        self,
        life: Life,
        connections: Connections,
        pods: Mapping[str, Pod],
        policy: str = "none",
        machine: Sequence[int] = (0,),
    ) -> None:
        self._life, self._connections, self._pods = life, connections, pods
        self._allocator = Allocator(life, connections, pods.keys)
        self._policy = policy if life.behaviour.topology_policies else "none"
        self._machine = machine
        self._affinities: dict[tuple[str, str], frozenset[int] | None] = {}
        self._reusable: dict[str, Reusable] = {}

    async def admit(self, pod: Pod) -> None:
        """Raises PodRefusedError."""
        try:
            if self._life.behaviour.allocates == "start":
                return
            if self._life.behaviour.allocates == "pod":
                await self._whole(pod)
            else:
                await self._one_by_one(pod)
        except AllocationError as error:
            message = self._life.behaviour.admission_error.format(error)
            raise PodRefusedError("UnexpectedAdmissionError", message) from error
        self._predicate(pod)

    async def start(self, pod: Pod, container: Container) -> starting.RunOptions | None:
        """What the container runs with; None if it has no devices. Raises AllocationError."""
        life = self._life
        if life.behaviour.allocates == "start":
            if life.ledger.keep_only(self._pods):  # 1.8 doesn't wait for the pod sources
                life.ledger.recount()
            return await starting.start_1_8(life, self._connections, pod, container)
        again = False
        for resource, number in container.resources.items():
            if not life.ledger.is_plugin_resource(resource) or not (number or life.behaviour.zero_pre_starts):
                continue
            if life.behaviour.pre_start:
                await starting.pre_start(life, self._connections, pod, container, resource)
            again |= life.ledger.held(pod.name, container.name, resource) is None
        if again:
            await self._reallocate(pod, container)
        holdings = life.ledger.of_container(pod.name, container.name)
        answers = [one.answer for one in holdings if one.answer is not None]
        return starting.merged(life.behaviour, answers, f"{pod.name}-{container.name}") if holdings else None

    def _predicate(self, pod: Pod) -> None:
        life, others = self._life, [one for name, one in self._pods.items() if name != pod.name]
        counts = status.capacity(life, self._connections)["allocatable"]
        node = predicate.allocatable(life.ledger, counts, pod.name)
        short = predicate.short_of(pod, others, node, missing_is_fine=life.behaviour.minor >= 10)
        if short is not None:
            raise PodRefusedError(f"OutOf{short[0]}", short[1])

    async def _whole(self, pod: Pod) -> None:
        reusable: Reusable = {}
        for container in pod.all:
            await self._allocator.allocate(pod, container, reusable, self._affinity)

    async def _one_by_one(self, pod: Pod) -> None:
        for container in pod.all:
            if self._policy != "none":
                self._place(pod, container)
            await self._allocate_one(pod, container)

    async def _allocate_one(self, pod: Pod, container: Container) -> None:
        self._reusable = {pod.name: self._reusable.get(pod.name, {})}
        await self._allocator.allocate(pod, container, self._reusable[pod.name], self._affinity)

    async def _reallocate(self, pod: Pod, container: Container) -> None:
        """A plugin's resource of which the container holds nothing: a race at the node's restart, say its authors."""
        if self._life.behaviour.reallocates == "pod":
            try:
                await self._whole(pod)
            except AllocationError as error:  # 1.12 to 1.17 ignore it
                self._life.journal.emit("allocate failed", pod=pod.name, reason=str(error))
        elif self._life.behaviour.reallocates == "container" and pod.name in self._pods:
            await self._allocate_one(pod, container)

    def _affinity(self, pod: str, container: str) -> frozenset[int] | None:
        return self._affinities.get((pod, container))

    def _place(self, pod: Pod, container: Container) -> None:
        """The topology manager's decision for one container."""
        self._allocator.collect()
        try:
            hints = [
                topology.hints(
                    self._wish(pod, container, resource, number),
                    self._machine,
                    missing_crashes=self._life.behaviour.vanished_crashes,
                )
                for resource, number in container.resources.items()
                if self._life.ledger.is_plugin_resource(resource)
            ]
        except topology.MissingDeviceError:
            where = "devicemanager.(*ManagerImpl).generateDeviceTopologyHints"
            raise self._life.crash(nil_pointer(where)) from None
        affinity, admitted = topology.merge(self._policy, hints, self._machine)
        if not admitted:
            raise PodRefusedError("TopologyAffinityError", topology.NO_LOCALITY)
        self._affinities[pod.name, container.name] = affinity

    def _wish(self, pod: Pod, container: Container, resource: str, number: int) -> topology.Wish:
        ledger = self._life.ledger
        nodes = {device.id: device.nodes for device in ledger.known.get(resource, {}).values()}
        held = frozenset(ledger.held(pod.name, container.name, resource) or ())
        if held:
            return topology.Wish(nodes, held, frozenset(), number, possible=len(held) == number)
        available = frozenset(ledger.available(resource))
        reusable = frozenset(self._reusable.get(pod.name, {}).get(resource, ()))
        return topology.Wish(nodes, available, reusable, number, possible=len(available | reusable) >= number)

"""Giving a container its devices: Allocate, and the record of its answer.

allocateContainerResources in pkg/kubelet/cm/devicemanager/manager.go.
"""

from collections.abc import Callable, Iterable

from dpgateway_simulator.kubelet.choice import Choice, Request
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.errors import AllocationError, PluginError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.ledger import Held, Holding
from dpgateway_simulator.kubelet.pods import Pod, PodContainer
from dpgateway_simulator.wire.dialects import Answer

Reusable = dict[str, set[str]]
Affinity = Callable[[str, str], frozenset[int] | None]  # (pod, container): the NUMA nodes that the admission chose


async def ask(
    incarnation: Incarnation, connections: PluginConnections, request: Request, ids: Iterable[str]
) -> Answer | None:
    """Allocate, and the events that tell of it; None when the answer holds no container."""
    endpoint = connections.endpoints.get(request.resource)
    if endpoint is None:
        raise AllocationError(incarnation.behaviour.unknown_plugin_error.format(request.resource))
    devices = tuple(sorted(ids))
    incarnation.emit("allocate", **request.about, devices=devices)
    try:
        return await endpoint.reach().allocate(devices)
    except (PluginError, AllocationError) as error:
        incarnation.emit("allocate failed", **request.about, reason=str(error))
        raise AllocationError(str(error)) from error


class Allocator:
    """The allocations of one incarnation. AllocationError carries the device manager's own words."""

    def __init__(
        self, incarnation: Incarnation, connections: PluginConnections, active: Callable[[], Iterable[str]]
    ) -> None:
        self._incarnation, self._connections, self._active = incarnation, connections, active
        self._ledger, self._behaviour = incarnation.ledger, incarnation.behaviour

    async def allocate(self, pod: Pod, container: PodContainer, reusable: Reusable, affinity: Affinity) -> None:
        """All resources of one container. Init containers leave their devices in `reusable` for the next ones."""
        await self._resources(pod, container, reusable, affinity)
        keeps = container in pod.init and not (container.restartable and self._behaviour.sidecars)
        for one in self._ledger.of_container(pod.name, container.name):
            before = reusable.get(one.resource, set())
            reusable[one.resource] = before | one.ids if keeps else before - one.ids

    def collect(self) -> None:
        """UpdateAllocatedDevices: frees the devices of pods that are gone, once all pod sources were read."""
        if self._incarnation.sources_ready and self._ledger.keep_only(self._active()):
            self._ledger.recount()

    async def _resources(self, pod: Pod, container: PodContainer, reusable: Reusable, affinity: Affinity) -> None:
        wanted = [(name, n) for name, n in container.resources.items() if self._ledger.is_plugin_resource(name)]
        if wanted:
            self.collect()
        changed = self._behaviour.checkpoint_each_container
        for resource, number in wanted:
            request = Request(pod.name, container.name, resource, number)
            choice = Choice(self._incarnation, self._connections, request)
            ids = await choice.choose(reusable.get(resource, set()), affinity(pod.name, container.name))
            if ids:
                changed = True
                answer = await self._call(request, ids)
                self._ledger.hold(Holding(pod.name, container.name, resource, self._by_node(resource, ids), answer))
                self._incarnation.emit("allocated", **request.about, devices=tuple(sorted(ids)))
        if changed:
            self._incarnation.save()

    async def _call(self, request: Request, ids: set[str]) -> Answer:
        try:
            answer = await ask(self._incarnation, self._connections, request, ids)
        except AllocationError:
            self._ledger.recount()
            raise
        if answer is not None:
            return answer
        if self._behaviour.empty_answer_error is None:
            raise self._incarnation.crash("panic: runtime error: index out of range [0] with length 0")
        raise AllocationError(self._behaviour.empty_answer_error)

    def _by_node(self, resource: str, ids: set[str]) -> Held:
        known, held = self._ledger.known.get(resource, {}), Held()
        for device in sorted(ids):
            if device not in known and self._behaviour.vanished_crashes:
                raise self._incarnation.nil_pointer("devicemanager.(*ManagerImpl).allocateContainerResources")
            nodes = known[device].nodes if device in known else None
            for node in nodes or (self._behaviour.no_numa_key,):
                held.setdefault(node, []).append(device)
        return held

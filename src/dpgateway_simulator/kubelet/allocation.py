"""Allocation of a container's devices: Allocate, and the record of its answer.

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
    """Calls Allocate and emits its events; None if the answer contains no container."""
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
    """The allocations of one incarnation. An AllocationError carries the device manager's own message."""

    def __init__(
        self, incarnation: Incarnation, connections: PluginConnections, active: Callable[[], Iterable[str]]
    ) -> None:
        self._incarnation, self._connections, self._active = incarnation, connections, active
        self._ledger, self._behaviour = incarnation.ledger, incarnation.behaviour

    async def allocate(self, pod: Pod, container: PodContainer, reusable: Reusable, affinity: Affinity) -> None:
        """Allocates all resources of one container. An init container adds its devices to `reusable`."""
        await self._resources(pod, container, reusable, affinity)

        # A sidecar keeps running beside the app containers, so from 1.29 on its devices aren't reused.
        keeps = container in pod.init and not (container.restartable and self._behaviour.sidecars)
        for one in self._ledger.of_container(pod.name, container.name):
            before = reusable.get(one.resource, set())
            reusable[one.resource] = before | one.ids if keeps else before - one.ids

    def collect(self) -> None:
        """UpdateAllocatedDevices: frees devices of removed pods, but not before all pod sources have been read."""
        if self._incarnation.sources_ready and self._ledger.keep_only(self._active()):
            self._ledger.recount()

    async def _resources(self, pod: Pod, container: PodContainer, reusable: Reusable, affinity: Affinity) -> None:
        wanted = [(name, n) for name, n in container.resources.items() if self._ledger.is_plugin_resource(name)]
        # Devices are freed lazily: only the next allocation looks for removed pods.
        if wanted:
            self.collect()

        # Up to 1.18 the checkpoint is written for every container, also for one without devices.
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
            # The ids were marked in use while Allocate ran. An empty answer, below, leaves them marked.
            self._ledger.recount()
            raise
        if answer is not None:
            return answer
        if self._behaviour.empty_answer_error is None:  # 1.10 and 1.11 read resp.ContainerResponses[0]
            raise self._incarnation.crash("panic: runtime error: index out of range [0] with length 0")
        raise AllocationError(self._behaviour.empty_answer_error)

    def _by_node(self, resource: str, ids: set[str]) -> Held:
        known, held = self._ledger.known.get(resource, {}), Held()
        for device in sorted(ids):
            # From 1.34 on allDevices maps to pointers, and the Topology of an id that left the list during
            # Allocate is read without a nil check.
            if device not in known and self._behaviour.vanished_crashes:
                raise self._incarnation.nil_pointer("devicemanager.(*ManagerImpl).allocateContainerResources")
            nodes = known[device].nodes if device in known else None
            for node in nodes or (self._behaviour.no_numa_key,):
                held.setdefault(node, []).append(device)
        return held

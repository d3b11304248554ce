"""Allocation of a container's devices: Allocate, and the record of its answer.

allocateContainerResources in pkg/kubelet/cm/devicemanager/manager.go. The ids are marked in use (`allocated`) when they
are chosen, and become a holding when Allocate has answered. A failed call derives the marks from the holdings again; an
answer without containers leaves them, as in the kubelet.
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

    def collect(self) -> None:
        """UpdateAllocatedDevices: frees devices of removed pods, but not before all pod sources have been read."""
        if self._incarnation.sources_ready and self._ledger.keep_only(self._active()):
            self._ledger.recount()

    async def allocate(
        self, pod: Pod, container: PodContainer, reusable: Reusable, affinity: frozenset[int] | None
    ) -> None:
        """Allocates all resources of one container. An init container adds its devices to `reusable`."""
        # Devices are freed lazily: only the next allocation looks for removed pods.
        wanted = [(name, n) for name, n in container.resources.items() if self._ledger.is_plugin_resource(name)]
        if wanted:
            self.collect()

        # Up to 1.18 the checkpoint is written for every container, also for one without devices.
        changed = self._behaviour.checkpoint_each_container
        for resource, number in wanted:
            request = Request(pod.name, container.name, resource, number)
            choice = Choice(self._incarnation, self._connections, request)
            if ids := await choice.choose(reusable.get(resource, set()), affinity):
                changed = True
                await self._hold(request, ids)
        if changed:
            self._incarnation.save()

        # A sidecar keeps running beside the app containers, so from 1.29 on its devices aren't reused.
        keeps = container in pod.init and not (container.restartable and self._behaviour.sidecars)
        for one in self._ledger.of_container(pod.name, container.name):
            before = reusable.get(one.resource, set())
            reusable[one.resource] = before | one.ids if keeps else before - one.ids

    async def _hold(self, request: Request, ids: set[str]) -> None:
        """Calls Allocate for the chosen ids and records the holding."""
        behaviour = self._behaviour
        try:
            answer = await ask(self._incarnation, self._connections, request, ids)
        except AllocationError:
            self._ledger.recount()
            raise
        if answer is None:
            if behaviour.empty_answer_error is None:  # 1.10 and 1.11 read resp.ContainerResponses[0]
                raise self._incarnation.crash("panic: runtime error: index out of range [0] with length 0")
            raise AllocationError(behaviour.empty_answer_error)

        known, by_node = self._ledger.known.get(request.resource, {}), Held()
        for device in sorted(ids):
            # From 1.34 on allDevices maps to pointers, and the Topology of an id that left the list during
            # Allocate is read without a nil check.
            if device not in known and behaviour.vanished_crashes:
                raise self._incarnation.nil_pointer("devicemanager.(*ManagerImpl).allocateContainerResources")
            nodes = known[device].nodes if device in known else None
            for node in nodes or (behaviour.no_numa_key,):
                by_node.setdefault(node, []).append(device)
        self._ledger.hold(Holding(request.pod, request.container, request.resource, by_node, answer))
        self._incarnation.emit("allocated", **request.about, devices=tuple(sorted(ids)))

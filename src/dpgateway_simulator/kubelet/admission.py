"""Pod admission, Allocate and container start, in the order of each release.

Allocate is called at the start of each container in 1.8; for the whole pod at its admission in 1.9 to 1.17
(lifecycle/predicate.go); from 1.18 on container by container, after the topology manager
(cm/topologymanager/scope*.go). From 1.9 on the general predicate ends an admission.

Two caches live as long as the incarnation. `_affinities` contains the topology manager's choice, keyed by (pod,
container). `_reusable` contains the devices that init containers leave to later containers, for the pod admitted last
only, as the kubelet's devicesToReuse.

`_allocate` is allocateContainerResources in pkg/kubelet/cm/devicemanager/manager.go. Ids are marked in use (`allocated`
in the ledger) when they are chosen, and become a holding when Allocate has answered. A failed call derives the marks
from the holdings again; an answer without containers leaves them, as in the kubelet.
"""

from collections.abc import Mapping

from dpgateway_simulator.kubelet import pods, starting, status, topology
from dpgateway_simulator.kubelet.choice import Choice, Request
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.errors import AllocationError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.ledger import Held, Holding
from dpgateway_simulator.kubelet.pods import Pod, PodContainer

Reusable = dict[str, set[str]]


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
        node = pods.allocatable(self._ledger, counts, pod.uid)
        short = pods.short_of(pod, others, node, missing_is_fine=self._behaviour.ignores_unknown)
        if short is not None:
            raise PodRefusedError(f"OutOf{short[0]}", short[1])

    async def start(self, pod: Pod, container: PodContainer) -> starting.RunOptions | None:
        """The options that the container runs with; None without devices. Raises AllocationError."""
        if self._behaviour.allocates == "start":
            self._ledger.keep_only(one.uid for one in self._pods.values())  # 1.8 doesn't wait for the pod sources
            return await starting.allocate(self._incarnation, self._connections, pod, container)

        # GetDeviceRunContainerOptions: PreStartContainer runs at every start, per resource, before the missing
        # holdings are noticed.
        again = False
        for resource, number in {**container.resources, **dict.fromkeys(sorted(container.by_claim), 1)}.items():
            if not self._ledger.is_plugin_resource(resource) or not (number or self._behaviour.zero_pre_starts):
                continue
            if self._behaviour.pre_start:
                request = Request(pod.uid, container.name, resource, number, pod.name)
                await starting.pre_start(self._incarnation, self._connections, request)
            # Only the allocation leaves to DRA what a claim has given (isDRAExtendedResource).
            unheld = self._ledger.held(pod.uid, container.name, resource) is None
            again |= unheld and resource not in container.by_claim

        # A plugin that registered after the pod's admission leaves the container without holdings; the kubelet's
        # comment calls it a race at node restart.
        if again and self._behaviour.reallocates == "pod":
            try:
                await self._allocate_all(pod)
            except AllocationError as error:  # 1.12 to 1.17 ignore it
                self._incarnation.emit("allocate failed", pod=pod.name, reason=str(error))
        elif again and self._behaviour.reallocates == "container" and pod.name in self._pods:
            await self._allocate_one(pod, container)
        holdings = self._ledger.of_container(pod.uid, container.name)
        answers = [one.answer for one in holdings if one.answer is not None]
        return starting.merged(self._behaviour, answers, f"{pod.name}-{container.name}") if holdings else None

    async def _allocate_all(self, pod: Pod) -> None:
        reusable: Reusable = {}
        for container in pod.all:
            await self._allocate(pod, container, reusable, None)

    async def _allocate_one(self, pod: Pod, container: PodContainer) -> None:
        self._reusable = {pod.name: self._reusable.get(pod.name, {})}
        affinity = self._affinities.get((pod.name, container.name))
        await self._allocate(pod, container, self._reusable[pod.name], affinity)

    def _place(self, pod: Pod, container: PodContainer) -> None:
        """The topology manager's decision for one container."""
        # Hints count free devices, so those of removed pods are freed first, but not before all pod sources have been
        # read (UpdateAllocatedDevices).
        if self._incarnation.sources_ready:
            self._ledger.keep_only(one.uid for one in self._pods.values())
        numa, crashes, hints = self._incarnation.node.numa, self._behaviour.vanished_crashes, []
        for resource, number in container.resources.items():
            if not self._ledger.is_plugin_resource(resource):
                continue
            nodes = {device.id: device.nodes for device in self._ledger.known.get(resource, {}).values()}
            available = frozenset(self._ledger.available(resource))
            reusable = frozenset(self._reusable.get(pod.name, {}).get(resource, ()))
            possible = len(available | reusable) >= number

            # A container that is admitted again (kubelet restart) can only get its own devices.
            if held := self._ledger.held(pod.uid, container.name, resource):
                available, reusable, possible = frozenset(held), frozenset(), len(held) == number
            candidates = topology.Candidates(nodes, available, reusable, number, possible=possible)
            try:
                hints.append(topology.hints(candidates, numa, missing_crashes=crashes))
            except topology.MissingDeviceError:
                where = "devicemanager.(*ManagerImpl).generateDeviceTopologyHints"
                raise self._incarnation.nil_pointer(where) from None
        affinity, admitted = topology.merge(self._policy, hints, numa)
        if not admitted:
            raise PodRefusedError("TopologyAffinityError", topology.NO_LOCALITY)
        self._affinities[pod.name, container.name] = affinity

    async def _allocate(
        self, pod: Pod, container: PodContainer, reusable: Reusable, affinity: frozenset[int] | None
    ) -> None:
        """Allocates all resources of one container. An init container adds its devices to `reusable`."""
        # Devices are freed lazily: only the next allocation looks for removed pods.
        wanted = [(name, n) for name, n in container.resources.items() if self._ledger.is_plugin_resource(name)]
        if wanted and self._incarnation.sources_ready:
            self._ledger.keep_only(one.uid for one in self._pods.values())

        # Up to 1.18 the checkpoint is written for every container, also for one without devices.
        changed = self._behaviour.checkpoint_each_container
        for resource, number in wanted:
            request = Request(pod.uid, container.name, resource, number, pod.name)
            choice = Choice(self._incarnation, self._connections, request)
            if ids := await choice.choose(reusable.get(resource, set()), affinity):
                changed = True
                await self._hold(request, ids)
        if changed:
            self._incarnation.save()

        # A sidecar keeps running beside the app containers, so from 1.29 on its devices aren't reused.
        keeps = container in pod.init and not (container.restartable and self._behaviour.sidecars)
        for one in self._ledger.of_container(pod.uid, container.name):
            before = reusable.get(one.resource, set())
            reusable[one.resource] = before | one.ids if keeps else before - one.ids

    async def _hold(self, request: Request, ids: set[str]) -> None:
        """Calls Allocate for the chosen ids and records the holding."""
        behaviour = self._behaviour
        try:
            answer = await starting.ask(self._incarnation, self._connections, request, ids)
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

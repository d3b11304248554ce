"""The choice of a container's devices: devicesToAllocate in pkg/kubelet/cm/devicemanager/manager.go.

In order: devices that an init container left, then devices on the NUMA nodes of the topology manager's affinity, then
the rest. A plugin with GetPreferredAllocation chooses within one of the last two sets. Go picks ids in the random order
of its maps; here they are taken in sorted order.
"""

from dataclasses import dataclass

from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.errors import AllocationError, PluginError
from dpgateway_simulator.kubelet.incarnation import Incarnation

_SHORT = "requested number of devices unavailable for {}. Requested: {}, Available: {}"


@dataclass(frozen=True)
class Request:
    """A container's request for `number` devices of one resource. `pod`: the pod's uid."""

    pod: str
    container: str
    resource: str
    number: int
    pod_name: str

    @property
    def about(self) -> dict[str, str]:
        """For events."""
        return {"resource": self.resource, "pod": self.pod_name, "container": self.container}


class Choice:
    """The choice for one request: `_chosen` grows and `_needed` shrinks with every `_take`."""

    def __init__(self, incarnation: Incarnation, connections: PluginConnections, request: Request) -> None:
        self._incarnation, self._connections, self._request = incarnation, connections, request
        self._ledger, self._behaviour = incarnation.ledger, incarnation.behaviour
        self._chosen: set[str] = set()
        self._needed = request.number

    async def choose(self, reusable: set[str], affinity: frozenset[int] | None) -> set[str]:
        """The ids for Allocate; empty if nothing is to be allocated."""
        if not self._check():
            return set()
        if self._take(reusable):
            return self._chosen
        resource = self._request.resource
        available = self._ledger.available(resource)
        if len(available) < self._needed:
            raise AllocationError(_SHORT.format(resource, self._needed, len(available)))

        # filterByAffinity: the devices on NUMA nodes of the affinity, on other nodes only, and on no node.
        known, nowhere = self._ledger.known.get(resource, {}), available
        aligned, unaligned = set[str](), set[str]()
        if affinity is not None and any(device.nodes for device in known.values()):
            placed = {device: set(known[device].nodes or ()) for device in available}
            aligned = {device for device, nodes in placed.items() if nodes & affinity}
            nowhere = {device for device, nodes in placed.items() if not nodes}
            unaligned = available - aligned - nowhere

        # The preference is asked only where it has a choice: not if the aligned devices are all needed.
        if self._needed < len(aligned):
            pool, rest = aligned, [aligned]
        elif self._take(aligned):
            return self._chosen
        else:
            pool, rest = available, [unaligned, nowhere]
        for some in (await self._preferred(pool) & pool, *rest):
            if self._take(some):
                return self._chosen
        wanted, got = self._request.number, self._request.number - self._needed
        text = f"unexpectedly allocated less resources than required. Requested: {wanted}, Got: {got}"
        raise AllocationError(text)

    def _check(self) -> bool:
        """Whether anything is to be allocated; AllocationError if the request can't be granted."""
        does, resource = self._behaviour, self._request.resource
        pod, container, number = self._request.pod, self._request.container, self._request.number

        # A container admitted again holds its devices from the checkpoint and needs no Allocate.
        held = self._ledger.held(pod, container, resource)
        if held is not None and len(held) != number:
            text = f'pod "{self._request.pod_name}" container "{container}" changed request for resource "{resource}"'
            raise AllocationError(f"{text} from {len(held)} to {number}")
        self._needed -= len(held or ())

        # kubernetes #118635: a container that the runtime found running passes before its plugin is back.
        running = (self._request.pod_name, container) in self._incarnation.found_running
        if does.spares_running and running and not self._incarnation.sources_ready:
            return False

        # From #116376 on the checks below apply to a request of 0 as well.
        if not does.needs_healthy and not self._needed:
            return False
        if resource not in self._ledger.healthy:
            raise AllocationError(does.unregistered_error.format(resource))

        # kubernetes #109595, in 1.25.10, 1.26.5, 1.27.2 and later: no start with stale devices after a reboot.
        healthy = self._ledger.healthy[resource]
        if does.needs_healthy and not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if does.needs_healthy and not healthy >= (held or set()):
            text = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices"
            raise AllocationError(f"{text} {resource}")
        return self._needed > 0

    def _take(self, some: set[str]) -> bool:
        """Takes from `some`, as many as are needed; true if the request is complete."""
        taken = self._ledger.allocated.setdefault(self._request.resource, set())
        for device in sorted(some - self._chosen)[: self._needed]:
            taken.add(device)
            self._chosen.add(device)
            self._needed -= 1
        return self._needed == 0

    async def _preferred(self, pool: set[str]) -> set[str]:
        endpoint = self._connections.endpoints.get(self._request.resource)
        if endpoint is None:
            raise AllocationError(f"endpoint not found in cache for a registered resource: {self._request.resource}")
        options = endpoint.options
        if not self._behaviour.preferred or options is None or not options.get_preferred_allocation_available:
            return set()

        # GetPreferredAllocation's `available` includes `must_include`, the devices chosen so far.
        asked = sorted(pool | self._chosen)
        self._incarnation.emit("prefer", **self._request.about, available=tuple(asked), size=self._request.number)
        try:
            return await endpoint.reach().prefer(asked, sorted(self._chosen), self._request.number)
        except (PluginError, AllocationError) as error:
            text = f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            raise AllocationError(text) from error

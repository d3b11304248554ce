"""The device manager's memory of devices. Pure: no clock, no wire.

The fields are those of ManagerImpl in pkg/kubelet/cm/devicemanager/manager.go: `healthy` is healthyDevices, `unhealthy`
unhealthyDevices, `known` allDevices, `allocated` allocatedDevices and `holdings` podDevices. `allocated` is redundant:
it runs ahead of `holdings` while an Allocate is in flight, and `recount` derives it from them again. A resource is a
plugin's if it is a key of `healthy` or `allocated`, even with an empty set.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dpgateway_simulator.wire.device_list import Device
from dpgateway_simulator.wire.dialects import Answer

Held = dict[int, list[str]]  # ids by NUMA node


@dataclass(frozen=True)
class Holding:
    """A container's devices of one resource, and the plugin's answer to their Allocate. `pod`: the pod's uid."""

    pod: str
    container: str
    resource: str
    by_node: Held
    answer: Answer | None

    @property
    def ids(self) -> set[str]:
        return {device for ids in self.by_node.values() for device in ids}


@dataclass
class DeviceLedger:
    """Every resource's devices, and their holders."""

    hides_unhealthy: bool = False  # 1.8 and 1.9 remember healthy devices only
    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    known: dict[str, dict[str, Device]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    holdings: dict[tuple[str, str, str], Holding] = field(default_factory=dict)

    def replace(self, resource: str, devices: Iterable[Device]) -> None:
        """Takes a whole list, from 1.12 on. An id listed both Healthy and Unhealthy counts twice."""
        self.healthy[resource], self.unhealthy[resource], self.known[resource] = set(), set(), {}
        for device in devices:
            self.known[resource][device.id] = device
            (self.healthy if device.healthy else self.unhealthy)[resource].add(device.id)

    def change(self, resource: str, last: dict[str, Device], devices: Iterable[Device]) -> None:
        """Takes a list's difference to the plugin's `last` one, up to 1.11; `last` then contains the new list."""
        healthy = self.healthy.setdefault(resource, set())
        unhealthy = self.unhealthy.setdefault(resource, set())
        known = self.known.setdefault(resource, {})
        gone = set(last)
        for device in devices:
            gone.discard(device.id)
            if device.id in last and last[device.id].health == device.health:
                continue
            last[device.id] = known[device.id] = device
            (healthy if device.healthy else unhealthy).add(device.id)
            (unhealthy if device.healthy else healthy).discard(device.id)
        for one in gone:
            healthy.discard(one)
            unhealthy.discard(one)
            known.pop(one, None)
            del last[one]

    def mark_unhealthy(self, resource: str) -> None:
        """markResourceUnhealthy. A resource that never sent a list gets no entry among the healthy from 1.10 on."""
        before = self.healthy.get(resource, set())
        if self.hides_unhealthy or resource in self.healthy:
            self.healthy[resource] = set()
        self.unhealthy[resource] = self.unhealthy.get(resource, set()) | before

    def forget(self, resource: str) -> None:
        self.healthy.pop(resource, None)
        self.unhealthy.pop(resource, None)

    def expect(self, resource: str) -> None:
        """Adds a resource from the checkpoint, without devices."""
        self.healthy[resource], self.unhealthy[resource] = set(), set()

    def is_plugin_resource(self, resource: str) -> bool:
        return resource in self.healthy or resource in self.allocated

    def available(self, resource: str) -> set[str]:
        return self.healthy.get(resource, set()) - self.allocated.get(resource, set())

    def held(self, pod: str, container: str, resource: str) -> set[str] | None:
        holding = self.holdings.get((pod, container, resource))
        return holding.ids if holding else None

    def of_container(self, pod: str, container: str) -> list[Holding]:
        return [one for one in self.holdings.values() if (one.pod, one.container) == (pod, container)]

    def hold(self, holding: Holding) -> None:
        self.holdings[holding.pod, holding.container, holding.resource] = holding

    def recount(self) -> None:
        """Derives `allocated` from the holdings again."""
        self.allocated = {}
        for one in self.holdings.values():
            self.allocated.setdefault(one.resource, set()).update(one.ids)

    def keep_only(self, pods: Iterable[str]) -> None:
        """Frees the devices of all pods but these, by uid."""
        active = set(pods)
        gone = [key for key in self.holdings if key[0] not in active]
        for key in gone:
            del self.holdings[key]
        if gone:
            self.recount()

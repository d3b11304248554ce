"""What a node can be asked for: the pools of its slices, less what claims have of them. Pure (structured allocator).

The slices are taken in the order of their names, devices as they are listed. Of a pool only the newest generation
counts. One with fewer slices than it says is incomplete and gives nothing; one with a device's name twice is invalid.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

Object = dict[str, Any]
SUFFIXES = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}


class DeviceId(NamedTuple):
    """A device of the cluster."""

    driver: str
    pool: str
    name: str


class SliceDevice(NamedTuple):
    """A device of a slice."""

    id: DeviceId
    spec: Object


@dataclass
class NodeInventory:
    """One node's devices in their order, and their use by allocated claims."""

    devices: list[SliceDevice] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """Pools with a name twice."""
    counters: dict[tuple[str, str, str, str], Decimal] = field(default_factory=dict)
    """What is left, by (driver, pool, counter set, counter)."""
    taken: set[DeviceId] = field(default_factory=set)
    """Devices that have been allocated whole."""
    capacity: Counter[tuple[DeviceId, str]] = field(default_factory=Counter)
    """What is consumed of devices with several allocations."""
    shared: set[DeviceId] = field(default_factory=set)
    """Devices with several allocations that have at least one."""

    def copy(self) -> "NodeInventory":
        return NodeInventory(
            self.devices, self.invalid, dict(self.counters), set(self.taken), Counter(self.capacity), set(self.shared)
        )

    def fits(self, one: SliceDevice, wanted: Mapping[str, Decimal]) -> bool:
        """Whether the device, or this much of it, is free, and so are the counters that it consumes."""
        if one.id in self.taken:
            return False
        if one.spec.get("allowMultipleAllocations"):
            for name, n in wanted.items():
                whole = quantity(one.spec.get("capacity", {}).get(name, {}).get("value", "0"))
                if self.capacity[one.id, name] + n > whole:
                    return False
            if one.id in self.shared:  # its counters are charged once
                return True
        return all(self.counters.get(key, Decimal(0)) >= n for key, n in _consumed(one))

    def take(self, one: SliceDevice, wanted: Mapping[str, Decimal]) -> None:
        if not one.spec.get("allowMultipleAllocations"):
            self.taken.add(one.id)
        for name, n in wanted.items():
            self.capacity[one.id, name] += n  # type: ignore[assignment]
        if one.id not in self.shared:
            for key, n in _consumed(one):
                self.counters[key] = self.counters.get(key, Decimal(0)) - n
        if one.spec.get("allowMultipleAllocations"):
            self.shared.add(one.id)


def inventory(node: str, slices: Iterable[Object], claims: Iterable[Object]) -> NodeInventory:
    """What the node has, less what the claims are allocated."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for one in sorted(slices, key=lambda it: str(it["metadata"]["name"])):
        spec = one["spec"]
        if spec.get("nodeName") == node or spec.get("allNodes"):
            pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)

    # The newest slices of each pool that is complete.
    found = NodeInventory()
    for (driver, pool), some in pools.items():
        newest = max(spec["pool"]["generation"] for spec in some)
        specs = [spec for spec in some if spec["pool"]["generation"] == newest]
        if len(specs) < specs[0]["pool"]["resourceSliceCount"]:
            continue
        devices = [
            SliceDevice(DeviceId(driver, pool, it["name"]), it) for spec in specs for it in spec.get("devices", ())
        ]
        if len({it.id for it in devices}) < len(devices):
            found.invalid.append(f"{driver}/{pool}")
            continue
        found.devices += devices
        for group in (it for spec in specs for it in spec.get("sharedCounters", ())):
            for name, counter in group["counters"].items():
                found.counters[driver, pool, group["name"], name] = quantity(counter["value"])

    by_id = {one.id: one for one in found.devices}
    for result in (it for claim in claims for it in results(claim) if not it.get("adminAccess")):
        id_ = DeviceId(result["driver"], result["pool"], result["device"])
        consumed = {name: quantity(n) for name, n in result.get("consumedCapacity", {}).items()}
        found.take(by_id.get(id_) or SliceDevice(id_, {}), consumed)
    return found


def results(claim: Object) -> list[Object]:
    """The devices that a claim is allocated."""
    return list(((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", ()))


def consumes(device: Object, asked: Mapping[str, str]) -> dict[str, Decimal]:
    """What a request takes of a device with several allocations: what it asks for, else the policy's default, else all;
    rounded up to the policy's least amount and step.
    """
    if not device.get("allowMultipleAllocations"):
        return {}
    found = {}
    for name, about in device.get("capacity", {}).items():
        policy = about.get("requestPolicy") or {}
        amount = quantity(asked.get(name) or policy.get("default") or about["value"])
        limits = policy.get("validRange") or {}
        least, step = quantity(limits.get("min", "0")), quantity(limits.get("step", "0"))
        amount = max(amount, least)
        if step and (rest := (amount - least) % step):
            amount += step - rest
        found[name] = amount
    return found


def quantity(text: str) -> Decimal:
    """A Kubernetes quantity: 1, 1500m, 2k, 3Gi."""
    number = str(text)
    if number.endswith("m"):
        return Decimal(number[:-1]) / 1000
    base, number = (Decimal(1024), number[:-1]) if number.endswith("i") else (Decimal(1000), number)
    suffix = number[-1:] if number[-1:] in SUFFIXES else ""
    return Decimal(number.removesuffix(suffix)) * base ** SUFFIXES[suffix]


def _consumed(one: SliceDevice) -> list[tuple[tuple[str, str, str, str], Decimal]]:
    return [
        ((one.id.driver, one.id.pool, group["counterSet"], name), quantity(counter["value"]))
        for group in one.spec.get("consumesCounters", ())
        for name, counter in group["counters"].items()
    ]

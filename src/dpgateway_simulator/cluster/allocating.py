"""The allocation of a pod's claims on one node: the first devices that fit. Pure (structured allocator, 1.37).

The search goes through the requests in their order and through the devices in theirs, and goes back where a later
request can't be met. A request for several devices takes them in order. A claim never gets a device twice, however many
shares it has left (seen); it gets 32 devices at most.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from dpgateway_simulator.cluster.inventory import NodeInventory, SliceDevice, consumes
from dpgateway_simulator.cluster.selectors import attribute, selected

Object = dict[str, Any]
MOST = 32
"""Devices of a claim (AllocationResultsMaxSize)."""


class Unallocatable(Exception):
    """The claims can't be allocated on this node; the scheduler's text."""


class WantedDevice(NamedTuple):
    """One device that a claim asks for."""

    request: str
    spec: Object
    selectors: list[str]
    first: bool
    """Whether it is the request's first one."""


class ChosenDevice(NamedTuple):
    """One device that was chosen."""

    wanted: WantedDevice
    device: SliceDevice
    consumed: dict[str, Decimal]


@dataclass(frozen=True)
class Allocator:
    """The allocation of claims from one inventory. `classes`: the DeviceClasses by name."""

    inventory: NodeInventory
    classes: Mapping[str, Object]

    def allocate(self, claims: Sequence[Object]) -> list[Object]:
        """`status.allocation` of each claim. Raises Unallocatable, SelectorError."""
        if self.inventory.invalid:
            raise Unallocatable(f"invalid resource pools were encountered: {', '.join(self.inventory.invalid)}")
        inventory, found = self.inventory, []
        for claim in claims:
            devices = claim["spec"].get("devices", {})
            for wanted in self._alternatives(devices.get("requests", ()), inventory):
                if len(wanted) > MOST:
                    raise Unallocatable(f"number of requested devices {len(wanted)} exceeds the claim limit of {MOST}")
                left, choices = inventory.copy(), list[ChosenDevice]()
                if _search(wanted, left, choices, devices.get("constraints", ())):
                    break
            else:
                raise Unallocatable("cannot allocate all claims")
            inventory, results = left, []
            for one in choices:
                driver, pool, name = one.device.id
                result: Object = {"request": one.wanted.request, "driver": driver, "pool": pool, "device": name}
                if one.wanted.spec.get("adminAccess"):
                    result["adminAccess"] = True
                elif one.device.spec.get("allowMultipleAllocations"):
                    result["shareID"] = str(uuid.uuid4())
                    result["consumedCapacity"] = {name: str(n.normalize()) for name, n in one.consumed.items()}
                results.append(result)

            # The configuration of the classes that were used, and of the claim, for the requests that it is for.
            config = []
            for request, spec in {one.wanted.request: one.wanted.spec for one in choices}.items():
                class_ = self.classes[spec["deviceClassName"]].get("spec", {})
                config += [{"source": "FromClass", "requests": [request], **one} for one in class_.get("config", ())]
            config += [{"source": "FromClaim", **one} for one in devices.get("config", ())]
            found.append({"devices": {"results": results, **({"config": config} if config else {})}})
        return found

    def _alternatives(self, requests: Sequence[Object], inventory: NodeInventory) -> Iterator[list[WantedDevice]]:
        """The lists of wanted devices, the best first: one for each way to choose among alternatives."""
        if not requests:
            yield []
            return
        first, rest = requests[0], requests[1:]
        choices = [(first["name"], first["exactly"])] if "exactly" in first else []
        choices += [(f"{first['name']}/{it['name']}", it) for it in first.get("firstAvailable", ())]
        for name, spec in choices:
            class_ = self.classes.get(spec["deviceClassName"])
            if class_ is None:
                raise Unallocatable(f"request {name}: device class {spec['deviceClassName']} does not exist")
            both = (*class_.get("spec", {}).get("selectors", ()), *spec.get("selectors", ()))
            selectors = [it["cel"]["expression"] for it in both]
            count = spec.get("count", 1)
            if spec.get("allocationMode") == "All":
                count = sum(selected(selectors, it.id.driver, it.spec) for it in inventory.devices)
                if not count:
                    raise Unallocatable("cannot allocate all claims")
            wanted = [WantedDevice(name, spec, selectors, first=index == 0) for index in range(count)]
            for more in self._alternatives(rest, inventory):
                yield [*wanted, *more]


def _met(constraints: Sequence[Object], chosen: Sequence[ChosenDevice]) -> bool:
    """`matchAttribute`: the devices of some requests have the same value."""
    for one in constraints:
        domain, _, name = one["matchAttribute"].rpartition("/")
        requests = {it.partition("/")[0] for it in one.get("requests", ())}
        devices = [it.device for it in chosen if not requests or it.wanted.request.partition("/")[0] in requests]
        values = {attribute(it.id.driver, it.spec, domain, name) for it in devices}
        if len(values) > 1 or None in values:
            return False
    return True


def _search(
    wanted: Sequence[WantedDevice],
    left: NodeInventory,
    chosen: list[ChosenDevice],
    constraints: Sequence[Object],
    begin: int = 0,
) -> bool:
    """Chooses devices for all that is wanted, from the `begin`th device on for the first; False if there is no way."""
    if len(chosen) == len(wanted):
        return True
    one = wanted[len(chosen)]
    used = {it.device.id for it in chosen}
    for index in range(0 if one.first else begin, len(left.devices)):
        device = left.devices[index]
        if device.id in used or not selected(one.selectors, device.id.driver, device.spec):
            continue
        admin = bool(one.spec.get("adminAccess"))
        amount = consumes(device.spec, one.spec.get("capacity", {}).get("requests", {}))
        if not admin and (not _tolerated(one.spec, device) or not left.fits(device, amount)):
            continue
        before = left.copy()
        if not admin:
            left.take(device, amount)
        chosen.append(ChosenDevice(one, device, amount))
        if _met(constraints, chosen) and _search(wanted, left, chosen, constraints, index + 1):
            return True
        chosen.pop()
        left.counters, left.taken = before.counters, before.taken
        left.capacity, left.shared = before.capacity, before.shared
    return False


def _tolerated(request: Object, device: SliceDevice) -> bool:
    """Whether the request tolerates the device's taints."""
    for taint in device.spec.get("taints", ()):
        if taint.get("effect") not in {"NoSchedule", "NoExecute"}:
            continue
        for one in request.get("tolerations", ()):
            same = one.get("effect") in {None, "", taint["effect"]} and one.get("key") in {None, "", taint["key"]}
            if same and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")):
                break
        else:
            return False
    return True

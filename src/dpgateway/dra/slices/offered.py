"""One device of a slice, and what of it can't be said.

A device that must not be given is *withheld*: left out, not tainted, because a claim that tolerates every taint gets a
tainted device (seen on 1.37). A taint says the driver's own verdict, Unhealthy, to the scheduler and to people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpgateway.dra.slices.attributes import MOST, attributes
from dpgateway.dra.slices.counters import counters
from dpgateway.dra.slices.names import LONGEST_LABEL, unique
from dpgateway.model import Device

SHARES = "shares"
"""The capacity that shares are; a request takes one unless it says more."""
UNHEALTHY = "unhealthy"
"""The name of the taint, after the driver's."""

Published = Mapping[str, object]
"""A device in the JSON form of resource.k8s.io/v1."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A device of a resource as it is offered by DRA."""

    device: Device
    resource: str
    key: str
    """What the device's name in the slice is made of: its id, or that and its resource where several share the pool."""
    hardware: frozenset[str]
    """The names of its hardware, as its pool excludes by them."""
    unhealthy: str = ""
    """Why it is Unhealthy; empty if it is Healthy."""
    shares: int = 1
    withheld: bool = False
    """Whether it is left out. Its name stays its own: a claim of that name gets this device."""


class PoolContent(NamedTuple):
    """What the slices of one pool say."""

    devices: tuple[Published, ...]
    """In the order in which the scheduler takes them."""
    counter_sets: tuple[Mapping[str, object], ...]
    names: Mapping[str, str]
    """The name of each device that can be published, by its key."""
    left_out: tuple[str, ...]
    """A sentence for each device that isn't published."""
    unsaid: tuple[str, ...]
    """A sentence for each attribute of the others that isn't."""


def pool(offered: Sequence[Offered], driver: str, roots: Mapping[str, str]) -> PoolContent:
    """The content of a pool. ``driver``: the driver's name at the kubelet; ``roots``: the PCIe root complex of each
    address.
    """
    # Resources may differ in their domains only: the first one has the name.
    by_key: dict[str, Offered] = {}
    clashing = [one for one in offered if by_key.setdefault(one.key, one) is not one]
    offered = tuple(by_key.values())
    names, nameless = unique(by_key)
    clash = "isn't published: another device of the pool has the same name"
    texts = [f"device {one.device.id} of {one.resource} {clash}, {one.key}" for one in clashing]
    texts += [f"device {key} {clash}" for key in nameless]

    offered = [one for one in offered if not one.withheld]
    # The scheduler must never see devices that exclude each other without the counters that say so.
    said = counters({one.key: one.hardware for one in offered if one.key in names})
    texts += said.obstacles
    published, unsaid = list[Published](), list[str]()
    for one in offered:
        if one.key not in names or one.key in said.withheld:
            continue
        known = attributes(one.device, one.resource, roots, room=MOST - (one.shares > 1))
        unsaid += [f"device {one.key}: {text}" for text in known.left_out]
        what: dict[str, object] = {"name": names[one.key], "attributes": dict(known.values)}
        if one.shares > 1:
            policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
            what["allowMultipleAllocations"] = True
            what["capacity"] = {SHARES: {"value": quantity(one.shares), "requestPolicy": policy}}
        if consumes := list(said.consumed.get(one.key, ())):
            what["consumesCounters"] = consumes
        if one.unhealthy:
            taint = {"key": f"{driver}/{UNHEALTHY}", "effect": "NoSchedule"}
            # A label value of at most 63 characters (IsValidLabelValue).
            value = re.sub(r"[^A-Za-z0-9_.]+", "-", one.unhealthy)[:LONGEST_LABEL].strip("-_.")
            what["taints"] = [{**taint, "value": value} if value else taint]
        published.append(what)
    return PoolContent(tuple(published), said.sets, names, tuple(texts), tuple(unsaid))


def quantity(number: int) -> str:
    """As the API server writes a number: 1000 is 1k, and another text would be written again and again."""
    return f"{number // 1000}k" if number and number % 1000 == 0 else str(number)

"""Warns of code that the contract allows, but is seldom intended."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from dpgateway.drivers.contract import ABILITIES, abilities
from dpgateway.model import Allocation
from dpgateway.testing.calls import doubt

_NEAR = 0.75  # difflib's ratio: prepair, preprae, releases and free_close are near, devices_of is not
_SHORTEST = 3
"""Characters. Shorter ids are found in any text."""


def check_names(driver: object) -> None:
    """Warns of a method whose name is nearly that of an optional method: the gateway never calls it."""
    has = abilities(driver)
    for name in dir(type(driver)):
        if name.startswith("_") or name in ABILITIES or not callable(getattr(driver, name, None)):
            continue
        if near := difflib.get_close_matches(name, set(ABILITIES) - has, n=1, cutoff=_NEAR):
            doubt(driver, f".{name}: the gateway never calls a method of this name; did you mean {near[0]}?")


def check_grants(driver: object, alone: Mapping[str, Allocation]) -> None:
    """Warns of an allocation with devices that weren't asked for. ``alone``: each device's allocation alone, by id."""
    for asked, allocation in alone.items():
        others = [other for other in alone if other not in asked and asked not in other]
        texts = [("device node", node.host_path) for node in allocation.device_nodes]
        texts += [("mount", mount.host_path) for mount in allocation.mounts]
        texts += [("CDI device", name) for name in allocation.cdi_devices]
        texts += [(f"env {name}", value) for name, value in allocation.env.items()]
        texts += [(f"annotation {name}", value) for name, value in allocation.annotations.items()]
        for what, value in texts:
            if found := [other for other in others if _names(value, other)]:
                doubt(driver, f".allocate([{asked}]): it gives {found[0]}, which wasn't asked for: {what} {value!r}")
                return

    # Each device alone gives the same nodes, as many as there are devices: probably the nodes of all.
    nodes = {frozenset(node.host_path for node in allocation.device_nodes) for allocation in alone.values()}
    if len(alone) > 1 and len(nodes) == 1 and len(min(nodes)) >= len(alone):
        ids, given = ", ".join(alone), ", ".join(sorted(min(nodes)))
        doubt(
            driver, f".allocate: each of {ids} alone is given all of {given}; expected the nodes of what was asked for"
        )


def _names(value: str, device: str) -> bool:
    """Whether the id is a whole word in ``value``: ``tty1`` isn't in ``/dev/tty11``."""
    if len(device) < _SHORTEST or device.isdecimal():
        return False
    return re.search(rf"(?<![\w-]){re.escape(device)}(?![\w-])", value) is not None

"""What each kubelet really does, one small function for each thing that a device plugin can see of it.

A fact's docstring is its heading, what it returns its cell. It runs against an engine of tests/scenarios: the real
device manager of a release, or a simulated kubelet of it.
"""

from collections.abc import Awaitable, Callable

from tests.real_kubelet.facts import calling, devices, pods, registering, restarting, wire
from tests.real_kubelet.facts.case import Case

__all__ = ["FACTS", "GROUPS", "Case", "Fact"]

Fact = Callable[[Case], Awaitable[str]]
GROUPS: dict[str, tuple[Fact, ...]] = {
    "Registering": registering.FACTS,
    "On the wire": wire.FACTS,
    "Calls": calling.FACTS,
    "Devices": devices.FACTS,
    "Pods": pods.FACTS,
    "Restarts and upgrades of the kubelet": restarting.FACTS,
}
FACTS: dict[str, Fact] = {fact.__name__: fact for facts in GROUPS.values() for fact in facts}

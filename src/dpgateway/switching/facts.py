"""What DRA needs, as plain values: each is true, false, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Fact(NamedTuple):
    """One thing that DRA needs. Unknown isn't false: it changes nothing."""

    value: bool | None
    """None if unknown."""
    text: str = ""
    """Why it isn't so, or isn't known: what was found, what was expected, what to do."""
    since: float = 0.0
    """When ``value`` became what it is, in seconds of the monotonic clock."""

    def now(self, value: bool | None, text: str, at: float) -> Fact:
        """The fact after another look. A new text alone doesn't change ``since``."""
        return Fact(value, text, self.since if value is self.value else at)


UNKNOWN = Fact(None)


@dataclass(frozen=True, slots=True)
class DraFacts:
    """All facts of a node. While the API server is away, they stay as they were."""

    registered: Fact = UNKNOWN
    """The present kubelet has accepted the DRA driver. Unknown while there is no kubelet."""
    node: Fact = UNKNOWN
    """Kubelet 1.36 or later, and a container runtime that handles CDI names."""
    slices: Fact = UNKNOWN
    """The API server has resource.k8s.io/v1, and slices may be read."""
    rights: Fact = UNKNOWN
    """The node and the classes may be read. While that is false, these aren't unknown, but refused."""
    fields: Mapping[str, Fact] = field(default_factory=dict)
    """`fields` contains whether the API server keeps what a pool's slices need, keyed by the pool's name in slices."""
    classes: Mapping[str, Fact] | None = None
    """`classes` contains whether the DeviceClass that counts for a resource selects our devices, keyed by the
    resource's name; None before the first list.
    """
    allocatable: Mapping[str, int] | None = None
    """`allocatable` contains the devices that the Node has of an extended resource: the larger of ``allocatable`` and
    ``capacity``, because the scheduler takes the device plugin for as long as it sees any. None if unknown.
    """

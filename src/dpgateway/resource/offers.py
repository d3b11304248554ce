"""The list of a resource: its offered ids with their health, for every front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpgateway.model import HEALTHY, Health


@dataclass(frozen=True, slots=True)
class Offer:
    """One offered id: a device, or a share of a device. Made from a checked device, so it doesn't check itself."""

    id: str
    health: Health = HEALTHY
    numa_nodes: tuple[int, ...] = ()
    first: str = ""
    """The id of its device's share 0, where the id doesn't spell it."""


Offers = Mapping[str, Offer]
"""The whole list, keyed by id."""

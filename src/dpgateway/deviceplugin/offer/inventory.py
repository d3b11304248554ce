"""The list of one resource as it is now, and waiting for the next one.

A value with a version, not a queue of changes: two streams see the same list, a slow one skips to the newest, and a
dead one takes nothing away from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from dpgateway.model import Offer


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the list."""

    version: int
    offers: Mapping[str, Offer]


class Inventory:
    """Owned by its resource; read by any number of streams on the same event loop."""

    def __init__(self) -> None:
        self.current: Snapshot | None = None
        """None until the resource can be offered."""
        self._changed = asyncio.Event()

    def publish(self, offers: Mapping[str, Offer]) -> bool:
        """Makes ``offers`` the list of now; False when a kubelet wouldn't see a difference."""
        if self.current is not None and _look_alike(self.current.offers, offers):
            self.current = Snapshot(self.current.version, offers)
            return False
        self.current = Snapshot(self.current.version + 1 if self.current else 1, offers)
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def newer(self, version: int) -> Snapshot:
        """The list of now as soon as its version is above ``version``; at once if it already is."""
        while self.current is None or self.current.version <= version:
            await self._changed.wait()
        return self.current


def _look_alike(old: Mapping[str, Offer], new: Mapping[str, Offer]) -> bool:
    """Whether the same travels: reasons don't, so a changed reason is no new version."""
    if len(old) != len(new):
        return False
    return all(
        (was := old.get(id_)) is offer or (was is not None and _looks(was) == _looks(offer))
        for id_, offer in new.items()
    )


def _looks(offer: Offer) -> tuple[bool, tuple[int, ...]]:
    return offer.health.ok, offer.numa_nodes

"""Resources that other gateways of the node own, whose grants are unknown here.

Theory of operation. A gateway grants hardware only if it knows all other grants of it. So while another gateway owns a
resource of a pool, this gateway grants nothing of the pool. That resource needn't be configured here: it may have
another name here, or be only in the other gateway's pool. Its lock names its pool; a lock of the first releases names
none, and may belong to any pool. The grants of a resource of another pool are known from its journal.

A resource without a pool may have been renamed, too. So a resource that had no owner when this gateway started, while
another gateway owned the rest, grants nothing until that gateway has no stranger left. Resources that both have go on.
A third gateway that takes such a resource over from the second while the first still serves learns from the lock to
wait (``after``).

A *stranger* is a resource of another gateway that isn't configured here. It is found by its lock, the only file that
exists before its first grant. A gateway that begins to serve makes files beside its lock, and so changes the folder's
mtime; while that stays the same, there is no new stranger. Once a stranger's lock is free, its journal is read before
the next grant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dpgateway.kit.tasks import aligned
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.owner import Owner, this_gateway
from dpgateway.resource.ownership import FOLDER, Ownership, hash_of, others

UNFREE = 0.25
"""Seconds between two looks at a stranger's lock: until it is free, the pool grants nothing."""
LOOKS = 2
"""Looks at the journals of strangers after each change of the checkpoint."""
SELDOM = 5.0
"""Seconds between two looks for strangers, so that the list mostly shows them before the next Allocate."""
TICK = 50_000_000
"""Nanoseconds within which two changes may have the same mtime: the kernel stamps files with its last tick."""


class Elsewhere:
    """Finds the other gateways' resources by their locks. Used from the event loop."""

    def __init__(self, orphans: Orphans, changed: Callable[[], None]) -> None:
        """``changed`` is called in the next turn of the loop after :attr:`served` or the strangers have changed."""
        self._orphans, self._changed = orphans, changed
        self._folder: Path = orphans.directory / FOLDER
        self.served: dict[str, str] = {}
        """`served` contains a sentence about the serving gateway, keyed by configured resource."""
        self._strangers: dict[str, Owner] = {}
        """`_strangers` contains the owners of the strangers, keyed by the hash of the resource."""
        self._new: set[str] = set()
        """The configured resources that had no owner when they were configured."""
        self._after: dict[str, frozenset[str]] = {}
        """`_after` contains the gateways that a resource's previous owner waited for, keyed by resource."""
        self.older: set[str] = set()
        """The gateways that owned the other resources; without any, no resource has been renamed."""
        self.late = orphans.late
        """The locks that stay although this gateway has ended what they guard: no stranger's."""
        self._telling = False
        self._seen = 0
        """The folder's mtime at the last look, in nanoseconds; 0 if another look has to follow."""

    def stranger(self, pool: str, gateways: frozenset[str] | None = None) -> str:
        """A sentence about the owner of a stranger that may be in the pool; empty if there is none. ``gateways``: only
        of these.
        """
        self.look()
        for one in self._strangers.values():
            if one.pool in (None, pool) and (gateways is None or one.gateway in gateways):
                return one.text
        return ""

    def after(self, resource: str) -> frozenset[str]:
        """The gateways that may own the resource under another name, if they still own a stranger."""
        return frozenset(self.older) if resource in self._new else self._after.get(resource, frozenset())

    def add(self, resource: str, text: str) -> None:
        """Another gateway serves the resource; ``text`` names that gateway."""
        self.served[resource] = text
        self._tell()

    def drop(self, resource: str) -> None:
        """This gateway serves the resource and has read its journal, or the resource is no longer configured."""
        self._seen = 0
        if self.served.pop(resource, None) is not None:
            self._tell()

    def _tell(self) -> None:
        """Coalesces the changes of a handover, which may move hundreds of resources at once."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._told)

    def _told(self) -> None:
        self._telling = False
        self._changed()

    def look(self) -> None:
        """Finds new strangers, at once if the folder hasn't changed."""
        try:
            changed = self._folder.stat().st_mtime_ns
        except OSError:  # no gateway has ever served
            return
        if changed == self._seen:
            return
        # A second change within the same tick would leave the mtime as it is, so the next look is needed in any case.
        self._seen = changed if time.time_ns() - changed > TICK else 0
        self._strangers |= self._held()

    def _held(self) -> dict[str, Owner]:
        return {one.hash: owner for one in self.others() if (owner := one.owner())}

    def others(self) -> Iterator[Ownership]:
        """The locks of strangers, owned or not."""
        found = others(self._orphans.directory, self._orphans.configured)
        return (one for one in found if one.hash not in self.late)

    async def run(self) -> None:
        """Watches the strangers' locks and journals; never returns."""
        # A stranger counts until its journal has been read after its lock was seen free.
        written = self._orphans.written
        looks, told = 0, dict(self._strangers)
        while True:
            self.look()
            held = self._held() if self._strangers else {}
            free = self._strangers.keys() - held.keys()
            self._strangers |= held

            # A stranger writes its journal a moment after the kubelet its checkpoint, so one look isn't enough.
            looks = LOOKS if written != self._orphans.written else looks - 1
            written = self._orphans.written
            if free or (self._strangers and looks > 0):
                await self._orphans.look()
            if free:
                self._strangers = self._held()  # another gateway may have taken one meanwhile

            # Only changes are told, because each telling makes all pools compute their exclusions.
            if self._strangers != told:
                told = dict(self._strangers)
                self._tell()
            await asyncio.sleep(UNFREE if self._strangers else aligned(SELDOM))

    def configured(self, resource: str) -> None:
        """The resource is configured from now on, so it is no stranger. Its lock tells who owned it before."""
        self._strangers.pop(hash_of(resource), None)
        owner = Ownership(self._orphans.directory, resource).owner()
        # The previous owner's wait is inherited: the gateway that it waited for may still serve.
        if owner is not None and owner.after:
            self._after[resource] = owner.after
            self.older |= owner.after
        # A lock of this gateway, whose resource is configured again, tells nothing.
        if owner is None:
            self._new.add(resource)
        elif owner.gateway != this_gateway():
            self._new.discard(resource)
            self.older.add(owner.gateway)

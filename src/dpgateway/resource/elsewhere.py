"""The resources that other gateways of the node own: what those give away isn't known here.

A gateway gives hardware away only if it knows what all others have given away. So while another gateway owns a resource
of a pool, this one gives away nothing of the pool. That resource need not be configured here: perhaps it has another
name here, or only the other gateway's pool has it. Its lock names its pool; the locks of the first releases don't, so
that it may be any pool. What a resource of another pool gives away is known from its journal.

A resource in no pool may have another name here, too. So one that no gateway owned before this one came gives nothing
away while the gateway that owned the others still owns such a resource. What both had before goes on. A third gateway,
which takes such a resource over from the second while the first still serves, learns from the lock that it has to wait.

Such a *stranger*, a resource of another gateway that isn't configured here, is found by its lock, because only the lock
is there before it gives something away. A gateway that begins to serve makes files beside its lock, and so changes the
folder's time; while that stays the same, there is no new stranger. Once a stranger's lock is free, its journal is read
before anything is given away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from dpgateway.kit.tasks import aligned
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.ownership import FOLDER, Owner, Ownership, hash_of, others, this_gateway

UNFREE = 0.25
"""Seconds between two looks at a stranger's lock, for a kubelet has no device of the pool until it is free."""
LOOKS = 2
"""Looks at the journals of strangers after each change of the checkpoint."""
SELDOM = 5.0
"""Seconds between two looks for strangers, so that the list shows them before the next Allocate."""
TICK = 50_000_000
"""Nanoseconds for which a change may leave the folder's time as it is: the kernel stamps files with its last tick."""


class Elsewhere:
    """Used from the event loop."""

    def __init__(self, orphans: Orphans, changed: Callable[[], None]) -> None:
        """``changed`` is called soon after :attr:`served` or the strangers have changed."""
        self._orphans, self._changed = orphans, changed
        self._folder: Path = orphans.directory / FOLDER
        self.served: dict[str, str] = {}
        """The configured resources that another gateway serves, each with a sentence that says which."""
        self._strangers: dict[str, Owner] = {}
        """The owners of the strangers, by the hash of their name."""
        self._new: set[str] = set()
        """The configured resources that no other gateway owned when they were configured."""
        self._after: dict[str, frozenset[str]] = {}
        """Those that were new to the gateway before this one, and the gateways that this one waited for."""
        self.older: set[str] = set()
        """The gateways that owned the others; without one, no resource has been renamed."""
        self._telling = False
        self._seen = 0
        """The folder's time when it was looked at last, in nanoseconds; 0 if another look has to follow."""

    def stranger(self, pool: str) -> str:
        """A sentence that names the owner of a stranger that may be in the pool; empty if there is none."""
        self.look()
        return next((one.text for one in self._strangers.values() if one.pool in (None, pool)), "")

    def renamed(self, resource: str) -> str:
        """The same of a stranger that may be this resource, which is in no pool, under another name."""
        if not (after := self.after(resource)):
            return ""
        self.look()
        return next((one.text for one in self._strangers.values() if not one.pool and one.gateway in after), "")

    def after(self, resource: str) -> frozenset[str]:
        """The gateways that may own the resource under another name, if one of them still owns a stranger."""
        return frozenset(self.older) if resource in self._new else self._after.get(resource, frozenset())

    def add(self, resource: str, text: str) -> None:
        """Another gateway serves it: ``text`` says which."""
        self.served[resource] = text
        self._tell()

    def drop(self, resource: str) -> None:
        """This gateway serves it, and has read what was given away; or it isn't configured any more."""
        self._seen = 0
        if self.served.pop(resource, None) is not None:
            self._tell()

    def _tell(self) -> None:
        """Once for the hundreds of resources that are handed over in one moment."""
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
        except OSError:  # nobody has ever served
            return
        if changed == self._seen:
            return
        self._seen = changed if time.time_ns() - changed > TICK else 0
        self._strangers |= self._held()

    def _held(self) -> dict[str, Owner]:
        found = others(self._orphans.directory, self._orphans.configured)
        return {one.hash: owner for one in found if (owner := one.owner())}

    async def run(self) -> None:
        """Watches the strangers' locks and journals; never returns."""
        written = self._orphans.written
        looks, told = 0, dict(self._strangers)
        while True:
            self.look()
            held = self._held() if self._strangers else {}
            free = self._strangers.keys() - held.keys()
            self._strangers |= held

            # A stranger writes its journal a moment later than the kubelet its checkpoint, so one look isn't enough.
            looks = LOOKS if written != self._orphans.written else looks - 1
            written = self._orphans.written
            if free or (self._strangers and looks > 0):
                await self._orphans.look()
            if free:
                self._strangers = self._held()  # another gateway may have taken one meanwhile

            if self._strangers != told:
                told = dict(self._strangers)
                self._tell()
            await asyncio.sleep(UNFREE if self._strangers else aligned(SELDOM))

    def configured(self, resource: str) -> None:
        """The resource is configured from now on, so it is no stranger."""
        self._strangers.pop(hash_of(resource), None)
        owner = Ownership(self._orphans.directory, resource).owner()
        if owner is not None and owner.after:
            self._after[resource] = owner.after
            self.older |= owner.after
        if owner is None:
            self._new.add(resource)
        elif owner.gateway != this_gateway():
            self._new.discard(resource)
            self.older.add(owner.gateway)

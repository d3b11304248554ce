"""The objects of one selector, kept up to date: a list, then a watch of what changes after it.

A watch that ends in an error is followed by another list, never resumed: the server may have forgotten the version
(410), or be another one with a backup's state. Pauses between the two are random, because a thousand nodes see the same
server come back, and grow until a watch works. A watch that ends without an error goes on in the next answer
(``transport``).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping

from dpgateway.cluster.errors import GONE, ClusterError
from dpgateway.cluster.server import ApiServer, Object, ObjectKind
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import backoff

LONGEST_PAUSE = 30.0
"""Seconds, as of other clients (client-go, tools/cache/reflector.go)."""
MOST_DELETED = 1000
WATCHED = range(300, 600)
"""Seconds after which the server ends a watch, at random, so that a restarted server doesn't see all at once."""

WORKS_AFTER = 2.0
"""Seconds after which a watch works, if it was accepted: then it says nothing until something changes."""


class WatchedObjects:
    """The objects of one kind with these fields. Used from the event loop."""

    def __init__(self, server: ApiServer, kind: ObjectKind, fields: Mapping[str, str], complaint: Complaint) -> None:
        self.objects: Observable[Mapping[str, Object] | None] = Observable(None)
        """By name; None before the first list of a run. While the server is away it stays as it was."""
        self.listed = Signal()
        """Notified before the objects of a list are known: the server may be another one than before."""
        self.failure = Observable("")
        """Why the objects may have changed unseen; empty if they are up to date."""
        self.error: ClusterError | None = None
        """The failure itself."""
        self._server, self._kind, self._fields, self._complaint = server, kind, fields, complaint
        self._failures, self._refused = 0, False
        """`_failures`: since a watch last worked. `_refused`: whether watches can be expected to fail although a list
        succeeds, as from a server, or a proxy, that answers each list and no watch.
        """
        self._accepted = "watch", kind.plural, "200"
        """Where the server counts the watches that it has accepted."""
        self._settling: asyncio.TimerHandle | None = None
        self._wrote: dict[str, Object] | None = None
        """Our own writes since a list began, by name: its answer may not have them."""
        self._deleted: deque[str] = deque(maxlen=MOST_DELETED)
        """The names of the objects deleted last."""

    async def run(self) -> None:
        """Never returns."""
        self.objects.set(None)  # from an earlier run, while another gateway may have written
        while True:
            listing, before = None, self._server.requests[self._accepted]
            self._wrote = {}
            try:
                listing = await self._server.list(self._kind, self._fields)
                found = {one["metadata"]["name"]: one for one in listing.objects}
                for name, one in self._wrote.items():
                    if name not in self._deleted and (name not in found or _version(found[name]) < _version(one)):
                        found[name] = one
                self._wrote = None
                self.listed.notify()
                self._settling = asyncio.get_running_loop().call_later(WORKS_AFTER, self._settle, before)
                if not self._refused:  # else it would be up to date for a moment after each list
                    self._up_to_date()
                self.objects.set(found)
                seconds = random.choice(WATCHED)  # noqa: S311
                async for change, one in self._server.changes(self._kind, self._fields, listing.version, seconds):
                    self._works()
                    self._changed(change, one)
            except ClusterError as error:
                self._failures += 1
                # An accepted watch that was cut off, without a status, says nothing of the next one; two do.
                mute = error.status == 0 and self._server.requests[self._accepted] > before and self._failures == 1
                is_refused = listing is not None and not mute
                self._refused = self._refused or is_refused
                # A version too old is the usual end of a watch, once; all else keeps the objects from being known, a
                # list that takes longer than the server remembers its pages, too.
                if error.status != GONE or listing is None or self._failures > 1:
                    self.error = error
                    self.failure.set(str(error))
                    self._complaint.say(str(error))
                pause = backoff(self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1.5)  # noqa: S311
                pause = max(pause, error.after)
            finally:
                if self._settling is not None:
                    self._settling.cancel()
            await asyncio.sleep(pause)

    def wrote(self, one: Object) -> None:
        """The server's answer to a write of our own, which the watch may not have shown yet."""
        # A deletion may be seen before the answer to the creation: then the object never comes back.
        if self.objects.value is not None and one["metadata"]["name"] not in self._deleted:
            if self._wrote is not None:
                self._wrote[one["metadata"]["name"]] = one
            self._changed("MODIFIED", one)

    def removed(self, name: str) -> None:
        """We have deleted the object."""
        self._deleted.append(name)
        if self.objects.value is not None and name in self.objects.value:
            self.objects.set({known: value for known, value in self.objects.value.items() if known != name})

    def _changed(self, change: str, one: Object) -> None:
        name, found = one["metadata"]["name"], self.objects.value or {}
        if change == "DELETED":
            self.removed(name)
        elif name not in found or _version(found[name]) < _version(one):
            self.objects.set({**found, name: one})

    def _settle(self, before: int) -> None:
        """``before``: how many watches were accepted before this one."""
        if self._server.requests[self._accepted] > before:
            self._works()
        else:
            self._settling = asyncio.get_running_loop().call_later(WORKS_AFTER, self._settle, before)

    def _works(self) -> None:
        """The watch does."""
        self._failures, self._refused = 0, False
        self._up_to_date()

    def _up_to_date(self) -> None:
        self.error = None
        self.failure.set("")
        self._complaint.over()


def _version(one: Object) -> int:
    """Versions of one kind are numbers that grow (KEP-5504)."""
    return int(one["metadata"]["resourceVersion"])

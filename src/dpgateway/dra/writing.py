"""Writes slices, and tells what it has deleted from what others delete.

What the API server says, or makes, of one pool's slices keeps no other pool from being written, at the latest by the
next attempt. A slice that is gone by the time it is updated was deleted by a kubelet that starts, one after the other:
that is no failure, and the next look writes it anew. Deletions by others are counted; more than WIPES in a minute are
another publisher's.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping

from dpgateway.cluster.errors import CONFLICT, OF_ALL, SERVER_ERROR, ClusterError
from dpgateway.cluster.server import ApiServer, Object, ObjectKind
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.dra.slices.changes import SliceChanges, is_as_written
from dpgateway.kit.timestamp import timestamp

WIPES = 5
"""Deletions by others in a minute that are a kubelet's or an administrator's; more are another publisher's."""
MINUTE = 60.0
"""Seconds."""


class AlteredSlice(ClusterError):
    """The API server keeps a slice otherwise than it was written."""


class SliceWriter:
    """Used from the event loop."""

    def __init__(self, server: ApiServer, seen: WatchedObjects) -> None:
        """``seen``: our slices."""
        self._server, self._seen = server, seen
        self.writes: Counter[str] = Counter()
        """The attempts to write slices, by outcome."""
        self.written: float | None = None
        self.written_at: str | None = None
        """When slices were last written, on the monotonic clock; and in RFC 3339."""
        self.pools = set[str]()
        """The pools that were written here since the last start."""
        self._refused: dict[str, None] = {}
        """The pools whose last attempt failed, the longest ago first."""
        self.deleted = 0
        """How often others have deleted slices; a kubelet does when it starts."""
        self._known = frozenset[str]()
        """The names of the slices at the last look, but for those that were deleted here."""
        self._wiped: deque[float] = deque(maxlen=WIPES + 1)
        """When others deleted slices, on the monotonic clock."""

    async def write(self, todo: Mapping[str, SliceChanges]) -> Mapping[str, ClusterError]:
        """Writes the changes of each pool; ends early if a slice was deleted meanwhile. Returns why the server refuses
        pools, by name. Raises ClusterError that isn't of one pool.
        """
        refused, wrote = dict[str, ClusterError](), False
        # A failure that may be of all pools ends the attempt, so the next one begins with the others.
        for name in [
            *(one for one in todo if one not in self._refused),
            *(one for one in self._refused if one in todo),
        ]:
            try:
                if not await self._write_pool(todo[name]):
                    return refused
                wrote = True
                self.pools.add(name)
                self._refused.pop(name, None)
            except ClusterError as error:
                self._refused.pop(name, None)
                self._refused[name] = None
                # A server that answers with 500 may do so for one pool, as with a broken webhook, and does so soon.
                if error.status in OF_ALL - {SERVER_ERROR} and not isinstance(error, AlteredSlice):
                    raise
                refused[name] = error
        # One that takes no pool may be broken as a whole.
        if refused and not wrote and all(error.status == SERVER_ERROR for error in refused.values()):
            raise next(iter(refused.values()))
        self.written, self.written_at = time.monotonic(), timestamp()
        if not refused:
            self.writes["success"] += 1
        return refused

    async def _write_pool(self, some: SliceChanges) -> bool:
        """Returns whether no slice was deleted meanwhile. Raises ClusterError."""
        for one in some.delete:
            name = one["metadata"]["name"]
            await self._server.delete(ObjectKind.SLICE, name)
            self._known -= {name}
            self._seen.removed(name)
        written = []
        for one in some.update:
            try:
                written.append((await self._server.replace(ObjectKind.SLICE, one), one))
            except ClusterError as error:
                if not error.missing:
                    raise
                self._seen.removed(one["metadata"]["name"])
                return False
            self._seen.wrote(written[-1][0])
        for one in some.create:
            written.append((await self._server.create(ObjectKind.SLICE, one), one))
            self._seen.wrote(written[-1][0])
        if altered := [kept["metadata"]["name"] for kept, sent in written if not is_as_written(kept, sent)]:
            raise AlteredSlice(f"slice {altered[0]} isn't kept as it was written: does a webhook change it?")
        return True

    def failed(self, error: ClusterError) -> None:
        """An attempt failed, here or before it came to a write."""
        if error.status == CONFLICT:
            self.writes["conflict"] += 1
        else:
            refused = 0 < error.status < SERVER_ERROR or isinstance(error, AlteredSlice)
            self.writes["refused" if refused else "away"] += 1

    # what others delete

    def looked(self) -> None:
        """From now on slices of those that are seen are missing if somebody else deletes them."""
        self._known = frozenset(self._seen.objects.value or ())

    def missing(self, seen: Mapping[str, Object]) -> bool:
        """Whether somebody else has deleted slices."""
        return not self._known <= seen.keys()

    def count_wipe(self, seen: Mapping[str, Object], pause: float) -> None:
        """Counts slices that somebody has deleted: once, if one after the other, within ``pause``."""
        now = time.monotonic()
        if self.missing(seen) and (not self._wiped or now - self._wiped[-1] > pause):
            self._wiped.append(now)
            self.deleted += 1

    @property
    def contested(self) -> float:
        """For how many seconds slices have been deleted too often; 0.0 if they aren't."""
        lasts = time.monotonic() - self._wiped[0] if len(self._wiped) > WIPES else MINUTE
        return max(0.0, MINUTE - lasts)

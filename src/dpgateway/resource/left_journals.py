"""The journals of resources that have no writer here: orphans', and those of resources that another front offers.

An id that nobody has any more is struck from its journal: else it would be owed, or told of, again after each start. A
resource that comes back has a writer of its own. What is written here shares a lane with it, and the resource's lock
stays until it is over: a late write would lose what is granted meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from dpgateway.errors import GatewayError
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads
from dpgateway.resource.journal import PATIENCE, Entries, Journal, entries_of_others

_log = bind(__name__)


class LeftJournals:
    """Used from the event loop. The disk has PATIENCE to answer."""

    def __init__(self, state_dir: Path, directory: Path, threads: Threads) -> None:
        """``directory``: the kubelet's device-plugins directory, which the journals' names depend on."""
        self._state_dir, self._directory, self._threads = state_dir, directory, threads
        self.lanes = KeyedLanes("journal of")
        """The calls on the journals of all fronts, by resource."""

    async def find(self, but: Collection[str]) -> tuple[dict[str, Entries], list[str]]:
        """The journals of all resources but these, keyed by resource, and complaints about those that can't be read.
        Raises GatewayError, also for want of a thread, OSError.
        """
        find = partial(entries_of_others, self._state_dir, self._directory, but)
        return await self._threads.call_within("journals", find, PATIENCE)

    async def load(self, resource: str) -> Entries:
        """Raises GatewayError, OSError."""
        journal = Journal(self._state_dir, self._directory, resource)
        return await self._threads.call_within("journals", journal.load, PATIENCE)

    async def strike(self, resource: str, ids: Collection[str], left: Callable[[], bool], front: str = "") -> None:
        """Removes these ids from the resource's journal, as long as ``left``: nobody else writes it. ``front``: as the
        journal's.
        """
        journal = Journal(self._state_dir, self._directory, resource, front)

        def strike() -> None:
            entries = {id_: entry for id_, entry in journal.load().items() if id_ not in ids}
            journal.save(entries, ours=left)  # else it is back, and has a writer again

        try:
            work = partial(self._threads.call, "left journal", strike, PATIENCE)
            await self.lanes.in_turn(resource, work, PATIENCE, "the disk")
        except (GatewayError, OSError) as error:
            _log.warning("%s still has ids that are free: %s", journal.path, error, extra={"resource": resource})

    def under_way(self, resource: str) -> Collection[asyncio.Future[Any]]:
        """The call on the resource's journals, if any, although nobody may wait for it any more."""
        last = self.lanes.last(resource)
        return () if last is None else (last,)

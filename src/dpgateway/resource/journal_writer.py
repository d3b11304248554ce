"""Keeps one resource's journal: what containers were given, over restarts of the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from dpgateway.errors import GatewayError, KubeletError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.tasks import wait_for
from dpgateway.kit.threads import Threads
from dpgateway.resource.front import NOTED_WITHIN, Usage
from dpgateway.resource.journal import Entries, Journal

T = TypeVar("T")

GATHERING = 0.05
"""Seconds from a change until it is written down. A kubelet writes its checkpoint sooner."""
PATIENCE = 2.0
"""Seconds that the disk has to answer."""
AGAIN = 10.0
"""Seconds until what couldn't be written is written again, if nothing else changes."""
UNWRITTEN = "after a restart nobody will remember what is given away now: %s"
KUBELET_ALONE = "what was given away before this start is known from the kubelet alone"
LAST_PATIENCE = 0.2
"""Seconds that it has at the end."""


class Remembering:
    """Used from the event loop. What the disk doesn't do is logged, and stops nothing."""

    def __init__(
        self,
        journal: Journal,
        usage: Usage,
        threads: Threads,
        log: logging.LoggerAdapter[logging.Logger],
        again: float = AGAIN,
    ) -> None:
        self._journal, self._usage, self._threads, self._log = journal, usage, threads, log
        self._saved: Entries | None = {}
        """What is on the disk; None if that isn't known."""
        self._unread = False
        """Whether the disk may have what an earlier gateway wrote down, and nobody has read it."""
        self._again = again
        self._complaint = Complaint(log, UNWRITTEN, "what is given away is written down again")
        self._busy: asyncio.Future[Any] | None = None
        self._rests = True

    @property
    def complaint(self) -> str:
        """Why the last change isn't written down; empty if it is."""
        return self._complaint.text

    async def load(self) -> None:
        """Publishes what an earlier gateway wrote down; nothing may be given away before."""
        self._rests, self._unread = False, True
        try:
            await self._read(PATIENCE)
        except (GatewayError, OSError) as error:  # also if there is no thread left
            self._complaint.say(f"{self._journal.path} can't be read: {error}", message=f"{KUBELET_ALONE} for now: %s")
            self._saved = None
            self._usage.remembered({})
            self._usage.notify()  # what is remembered already is to be written

    async def _read(self, seconds: float) -> None:
        """Publishes what the disk has. Raises OSError, GatewayError; a damaged file is put aside instead."""
        unreleased: Entries = {}
        try:
            unreleased = await self._on_disk(self._journal.load, seconds)
        except KubeletError as error:
            aside = await self._on_disk(self._journal.put_aside, seconds)
            self._log.warning("%s, and the file is %s now: %s", KUBELET_ALONE, aside, error)
        self._saved, self._unread = unreleased, False
        self._usage.remembered(unreleased, _recent(unreleased))

    async def follow(self) -> None:
        """Writes each change down; never returns."""
        seen = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._again if self.complaint else None):
                    await self._usage.wait(seen)
            await asyncio.sleep(GATHERING)  # many Allocates are one change, and none waits for a disk or a thread
            seen = self._usage.version
            await self._save(PATIENCE)

    async def finish(self, seconds: float = LAST_PATIENCE) -> None:
        """Writes the last change down. The disk itself has time until after the end."""
        await self._save(seconds, sync=False)

    async def rest(self) -> None:
        """Writes the last change down, and nothing more: from now on the journal is another gateway's."""
        await self.finish()
        self._rests = True

    def go_on(self) -> None:
        """It is ours again."""
        self._rests = False

    async def _save(self, seconds: float, *, sync: bool = True) -> None:
        if self._rests or self._usage.value.unreleased == self._saved:
            return
        try:
            if self._unread:
                await self._read(seconds)
            holdings = self._usage.value
            await self._on_disk(partial(self._journal.save, holdings.unreleased, sync=sync), seconds)
        except (GatewayError, OSError) as error:  # also if there is no thread left
            self._complaint.say(f"{self._journal.path}: {error}")
            self._saved = None
        else:
            self._complaint.over()
            self._saved = holdings.unreleased

    async def _on_disk(self, function: Callable[[], T], seconds: float) -> T:
        return await wait_for(self._in_turn(function), seconds, "the disk")

    async def _in_turn(self, function: Callable[[], T]) -> T:
        """One after the other, also if somebody stopped waiting for the one before."""
        while self._busy is not None and not self._busy.done():
            await asyncio.wait([self._busy])
        self._busy = future = self._threads.call("journal", function)
        return await asyncio.shield(future)


def _recent(unreleased: Entries) -> dict[str, float]:
    """When those ids were given away that the kubelet's checkpoint, as it was read last, may not have yet: in seconds
    of the monotonic clock.
    """
    now, date = time.monotonic(), time.time()
    ages = {id_: max(0.0, date - entry.since) for id_, entry in unreleased.items() if entry.since is not None}
    return {id_: now - age for id_, age in ages.items() if age < NOTED_WITHIN}

"""Reads the kubelet's checkpoint on request: on threads, because a file may be long, and a disk may hang.

Requests coalesce: one read serves all that came before it began, and a later request causes another. A file that is
hardly newer than a grant is read again WRITES later, because it may be from before the grant, and nobody may write it
again.

A damaged file is written anew by the kubelet, if it gets a list (1.9 and later): two lists at once had a 1.9 garble it,
and a kubelet that starts with a damaged file gives away what containers have. So now and then one resource sends its
list again; also if somebody has deleted the damaged file.
``node.checkpoint`` parses the file, ``values`` draws the conclusions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from dpgateway.deviceplugin.holdings.evidence import LONG_AGO
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import WRITES, Holdings
from dpgateway.errors import GatewayError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import backoff
from dpgateway.kit.threads import Threads
from dpgateway.node import checkpoint
from dpgateway.node.checkpoint import WRITING
from dpgateway.node.directory import read_checkpoint, stamped
from dpgateway.node.holders import Note

READING = 0.1
"""Seconds from a change of the kubelet's checkpoint until it is read. Before an id is dropped it is read anyway."""
MENDING = 60.0
"""The most seconds from a list that is sent again for a damaged file until the next one."""
MOST_HELD = 10_000
"""The most held ids of one resource: a thousand pods with ten each. Longer lists would block other work."""
LARGEST_HELD = 3 * 1024 * 1024
"""The most bytes of these ids. A kubelet ends a stream whose list exceeds 4 MiB (grpc-go's default), with 40 bytes per
id besides the id itself; so it can't know more."""

_log = bind(__name__)


class Reader:
    """Publishes the kubelet's note of each resource. Used from the event loop."""

    def __init__(
        self, directory: Path, holders: Mapping[str, ResourceHoldings], threads: Threads, published: Callable[[], None]
    ) -> None:
        """``published`` is called after each read."""
        self._directory, self._holders, self._threads, self._published = directory, holders, threads, published
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._asked = asyncio.Event()
        self._wanted: set[str] = set()
        """The resources for which the next read is published even if unchanged."""
        self._begun = 0
        """The value of ``_finished.version`` once the present or last read has finished."""
        self._finished = Signal()
        """Its version counts finished reads."""
        self._sent, self._due = 0, 0.0
        """How often a list was sent again for a damaged file, and when it is next, or the file is looked at again; 0
        while it isn't damaged."""
        self._last: tuple[object, float] = (None, LONG_AGO)
        """The identity of the last file read, and the time of its write."""
        self._complaint = Complaint(_log)
        self.registered: Observable[tuple[Mapping[str, Collection[str]], float]] = Observable(({}, LONG_AGO))
        """The ids that the kubelet calls healthy, by resource, and the time of that write."""

    async def run(self) -> None:
        """Reads until it is cancelled."""
        try:
            while True:
                await self._asked.wait()
                self._ask_no_more()
                # From here on a request needs another read: this one may miss the change that caused it.
                self._begun = self._finished.version + 1
                wanted, self._wanted = self._wanted, set()
                await self._read(wanted)
                if self._due or any(one.value.pending for one in self._holders.values()):
                    later = max(0.0, self._due - time.monotonic()) if self._due else WRITES
                    self._again = asyncio.get_running_loop().call_later(later, self.ask)
                self._finished.notify()
                self._published()
        finally:
            self._ask_no_more()

    def ask_soon(self) -> None:
        """Requests a read after READING: a starting kubelet writes its checkpoint for each resource that registers."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(READING, self.ask)

    def ask(self, *resources: str) -> None:
        """Requests a read that begins after this call. News are published, and for ``resources`` any result."""
        self._wanted.update(resources)
        self._asked.set()

    async def read(self) -> None:
        """Returns when a read that began after this call has been published."""
        self.ask()
        await self._finished.wait(self._begun)

    async def content(self) -> checkpoint.Content:
        """What the checkpoint says now. Raises GatewayError, OSError; FileNotFoundError if there is none."""
        raw, _ = await self._raw()
        return await self._threads.call("read the checkpoint", partial(checkpoint.parse, raw))

    async def _raw(self) -> tuple[bytes, float]:
        """The file as it is, and the time of its write."""
        raw, found = await self._threads.call("read the checkpoint", partial(read_checkpoint, self._directory))
        # Its time on the monotonic clock is fixed at the first sight, because the wall clock may be set later.
        file = (found.st_ino, found.st_mtime_ns, found.st_size)
        if file != self._last[0]:
            self._last = file, stamped(found.st_mtime)
        return raw, self._last[1]

    def _ask_no_more(self) -> None:
        self._asked.clear()
        for timer in filter(None, (self._timer, self._again)):
            timer.cancel()
        self._timer = self._again = None

    async def _read(self, wanted: Collection[str]) -> None:
        written, complaint = LONG_AGO, ""
        notes: Mapping[str, Note] = {}
        try:
            raw, written = await self._raw()
            content = await self._threads.call("read the checkpoint", partial(checkpoint.parse, raw))
            self.registered.set((content.registered, written))
        except FileNotFoundError:
            now, mends = time.monotonic(), ""
            if any(one.value.looked and not one.value.known for one in self._holders.values()):
                mends = self._sends_again(now)
            else:
                self._sent, self._due = 0, 0.0

            def missing(resource: str, holdings: Holdings) -> Holdings:
                new = holdings.missing(now)
                return replace(new, doubted=now) if resource == mends else new

            self._publish(missing, wanted)
            return
        except (OSError, GatewayError) as error:  # GatewayError also for want of a thread
            complaint = f"no id is dropped from any list, because the checkpoint can't be read: {error}"
        else:
            # Holdings that can't be true count as unread.
            excess = {one: text for one in self._holders if (text := _excess(content.notes.get(one, {})))}
            if excess:
                what = f"no id of {', '.join(excess)} is dropped from its list, because the checkpoint can't be true"
                complaint = f"{what}: {'; '.join(dict.fromkeys(excess.values()))}"
            notes = {one: content.notes.get(one, {}) for one in self._holders if one not in excess}

        # 1.8 and 1.9 write the file in place, so a fault is none while a kubelet may be in the middle of it.
        now, mends = time.monotonic(), ""
        if not complaint:
            self._complaint.over()
            self._sent, self._due = 0, 0.0
        elif now - written > WRITING:
            self._complaint.say(complaint)
            mends = self._sends_again(now)
        else:
            self._due = max(self._due, now + WRITING)

        # While the file can't be read, every note is None, so that no id is dropped.
        def noted(resource: str, holdings: Holdings) -> Holdings:
            new = holdings.noted(notes.get(resource), written, now)
            return replace(new, doubted=now) if resource == mends else new

        self._publish(noted, wanted)

    def _sends_again(self, now: float) -> str:
        """One resource after the other: it may be one that no kubelet listens to. Empty if none is due: the kubelet
        writes after each list, and each write is read.
        """
        if now < self._due:
            return ""
        self._sent += 1
        self._due = now + backoff(self._sent, MENDING)
        names = list(self._holders)
        return names[self._sent % len(names)] if names else ""

    def _publish(self, change: Callable[[str, Holdings], Holdings], wanted: Collection[str]) -> None:
        """Sets the holdings, and notifies ``wanted`` in any case. Most reads bring most resources no news."""
        for resource, holdings in self._holders.items():
            if not holdings.set(change(resource, holdings.value)) and resource in wanted:
                holdings.notify()


def _excess(note: Note) -> str:
    """Why a note is impossibly large; empty if it isn't."""
    if len(note) > MOST_HELD:
        return f"found {len(note)} ids that containers hold, expected at most {MOST_HELD}"
    if (size := len("".join(note).encode())) > LARGEST_HELD:
        return f"found {size} bytes of ids that containers hold, expected at most {LARGEST_HELD}"
    return ""

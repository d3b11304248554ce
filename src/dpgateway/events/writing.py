"""Writes events, while the API server answers and while it doesn't.

One request after the other, and at most one a PAUSE: a node whose driver fails may have a hundred pods to tell. While
the server doesn't answer, nothing piles up (``book``). What was said is in a file, so that another gateway says only
what is new, and takes back what is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dpgateway.cluster.account import Account
from dpgateway.cluster.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ClusterError
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.config import Configuration
from dpgateway.errors import GatewayError
from dpgateway.events.book import LARGEST, EventBook, Pace
from dpgateway.events.conditions import Condition, Subject, conditions
from dpgateway.events.objects import event, name, namespace, repeated
from dpgateway.kit import files
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import KeyedLanes, backoff
from dpgateway.kit.threads import Threads
from dpgateway.status.overview import Overview

FILE = "events/said.json"
"""In the state directory, whose own files are journals."""
DISK = 5.0
"""Seconds that the disk has to answer."""
PAUSE = 0.1
"""Seconds between two events."""
LOOK = 1.0
"""Seconds between two looks at the status, which has thousands of devices."""
LONGEST_PAUSE = 60.0
"""Seconds between two attempts while the server is away."""
ATTEMPTS = 3
REFUSED = frozenset({400, FORBIDDEN, NOT_FOUND, CONFLICT, 422})
"""The server works, and doesn't take this event."""

_log = bind(__name__)


class EventParts(NamedTuple):
    """What events are written with."""

    server: ApiServer
    state_dir: Path
    threads: Threads
    owned: bool = False
    """Whether nobody else uses the server."""


class NodeEvents(NamedTuple):
    """What the events are about."""

    node: str
    look: Callable[[], Mapping[Subject, Condition]]
    """What there is to say now."""
    changed: Signal
    """Notified when that may have changed."""


def event_writer(
    configuration: Configuration, node: tuple[str, Overview, Signal], threads: Threads, server: ApiServer | None
) -> EventWriter:
    """The writer of a configuration that wants events. ``node``: its name at the API server, its status, and notified
    when that may have changed; ``server``: of another part of the gateway.
    """
    name_, overview, changed = node

    def look() -> Mapping[Subject, Condition]:
        status = overview.status()
        at_risk = status.dra.at_risk if status.dra is not None else {}
        return conditions(name_, status.resources, kubelet=status.kubelet.there, at_risk=at_risk)

    owned = server is None
    server = server or ApiServer(Account.of(configuration.cluster), threads=threads)
    parts = EventParts(server, configuration.state_dir, threads, owned)
    return EventWriter(parts, NodeEvents(name_, look, changed))


class EventWriter:
    """Used from the event loop."""

    def __init__(
        self, parts: EventParts, about: NodeEvents, pace: Pace | None = None, look: float = LOOK, disk: float = DISK
    ) -> None:
        """``look``: seconds between two looks. ``disk``: seconds that it has to answer."""
        self.server, self._threads, self._about = parts.server, parts.threads, about
        self._file, self._owned = parts.state_dir / FILE, parts.owned
        self._lanes = KeyedLanes("events")
        """One write at a time: one that timed out may still come to its end, and never after a later one's."""
        self._book, self._every, self._disk = EventBook(pace), look, disk
        self._recalled = False
        """Whether the book has what earlier gateways said. From then on it knows more than the file, which lacks the
        outcome of a write that was cancelled with its :meth:`run`, or that the disk refused to take."""
        self._complaint = Complaint(_log, "events can't be written: %s", "events are written again")
        self._unsaved = Complaint(_log, "another gateway won't know which events were written: %s")
        self.outcomes: Counter[str] = Counter(written=0, failed=0)
        """The attempts so far."""

    async def run(self) -> None:
        """Writes until it is cancelled; may be called again then."""
        try:
            # While another gateway serves, there is nothing to say here, and the file isn't its last word.
            version = self._about.changed.version
            while not self._about.look():
                version = await self._about.changed.wait(version)
            if not self._recalled:
                read = partial(files.read, self._file, LARGEST)
                try:
                    text = await self._threads.call_within("events", read, self._disk)
                    self._book.recall(text.content, time.monotonic())
                except FileNotFoundError:
                    pass
                except (GatewayError, OSError, ValueError, TypeError, RecursionError) as error:
                    _log.warning("which events were written isn't known: %s: %s", self._file, error)
                self._recalled = True
            await self._follow()
        finally:
            if self._owned:
                await self.server.close()

    async def _follow(self) -> None:
        failures, saved = 0, True
        while True:
            looked, version = time.monotonic(), self._about.changed.version
            self._book.see(self._about.look(), looked)
            if (todo := self._book.due(looked)) is None:
                if not saved:  # what was due then is over
                    await self._save()
                    saved = True
                due = self._book.next()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due == float("inf") else max(0.0, due - time.monotonic())):
                        await self._about.changed.wait(version)
                await asyncio.sleep(max(0.0, min(looked + self._every, due) - time.monotonic()))
                continue
            self._book.begin(todo[0])
            await self._save()
            try:
                await self._tell(*todo)
            except ClusterError as error:
                if not error.unclear:
                    self._book.undo(todo[0])
                self.outcomes["failed"] += 1
                self._complaint.say(str(error))
                # Of an event that is refused another may pass: its namespace may be about to end.
                if error.status in REFUSED:
                    self._book.refused(todo[0], time.monotonic())
                else:
                    failures += 1
                    await asyncio.sleep(max(backoff(failures, LONGEST_PAUSE), error.after))
                continue
            failures = 0
            self.outcomes["written"] += 1
            self._complaint.over()
            self._book.wrote(*todo, time.monotonic())
            # Once for each event: the file is long if there are many, and the next one's attempt saves this outcome.
            if saved := self._book.due(time.monotonic()) is None:
                await self._save()
            await asyncio.sleep(min(PAUSE, self._every))

    async def _tell(self, subject: Subject, condition: Condition) -> None:
        """Writes the event, or counts it once more if it is there. Raises ClusterError."""
        node, where = self._about.node, namespace(subject)
        for _ in range(ATTEMPTS):
            try:
                await self.server.create(ObjectKind.EVENT, event(subject, condition, node, time.time()))
            except ClusterError as error:
                if error.status != CONFLICT:
                    raise
            else:
                return
            # It may be dropped, or counted by another gateway, at this moment.
            before = await self.server.get(ObjectKind.EVENT, name(subject, condition, node), where)
            if before is None:
                continue
            try:
                await self.server.replace(ObjectKind.EVENT, repeated(before, time.time()))
            except ClusterError as error:
                if error.status not in (CONFLICT, NOT_FOUND):
                    raise
            else:
                return
        raise ClusterError(f"an event of {subject.name} changes each time that it is read", CONFLICT)

    async def _save(self) -> None:
        text = self._book.to_json().encode()

        def write() -> None:
            files.make_private(self._file.parent)
            files.write(self._file, text, sync=False)

        try:
            await self._lanes.in_turn("said", lambda: self._threads.call("events", write), self._disk, "the disk")
            self._unsaved.over()
        except (GatewayError, OSError) as error:
            self._unsaved.say(str(error))

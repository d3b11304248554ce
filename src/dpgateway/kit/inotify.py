"""One inotify instance for the process, because fs.inotify.max_user_instances is 128 on many machines, for all of
root's programs together, and a kubelet and log collectors need some, too.

Theory of operation. The instance has one watch per directory, with the union of the subscribers' masks. Each subscriber
gets its events in its own queue, and a descriptor that is readable while the queue isn't empty. A thread reads the
kernel's events; it starts with the first subscriber, and ends with the last. One lock guards everything but the system
call that adds a watch, because a path may lead to a hanging file system. While such a call is under way no watch is
removed, because it may return the same one.

Watch first, then look: changes before ``add`` has returned may make no event.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import asyncinotify
from asyncinotify import Inotify, Mask

MOST = 16_384
"""Most events in a queue; the kernel's default for an instance (fs.inotify.max_queued_events)."""
_FOR_ALL = Mask.IGNORED | Mask.UNMOUNT | Mask.Q_OVERFLOW
"""Events that come without being asked for (inotify(7))."""


class FileEvent(NamedTuple):
    """One event of the kernel."""

    watch: int
    """The watch that :meth:`Subscription.add` returned; -1 for Q_OVERFLOW."""
    mask: Mask
    name: str | None = None
    """The entry's name in the directory; None: the directory itself."""


_OVERFLOW = FileEvent(-1, Mask.Q_OVERFLOW)


@dataclass(slots=True)
class _Watched:
    watch: asyncinotify.Watch
    masks: dict[Subscription, Mask] = field(default_factory=dict)


class _Instance:
    """The shared instance. It lives from the first subscriber to the last."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._lock = threading.Lock()
        self._inotify = Inotify(cache_size=64, sync_timeout=0)
        self._stop = os.eventfd(0)
        # Registered here, because the last subscriber may leave before the thread begins.
        self._poll = select.poll()
        for descriptor in (self._inotify.fd, self._stop):
            self._poll.register(descriptor, select.POLLIN)
        self._watched: dict[int, _Watched] = {}
        self._subscribers: set[Subscription] = set()
        self._adding = 0
        self._ended = False
        try:
            threading.Thread(target=self._run, name="inotify", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the system is out of threads
            self._inotify.close()
            os.close(self._stop)
            raise OSError(errno.EAGAIN, "the system has no thread left") from error

    def join(self, subscriber: Subscription) -> bool:
        with self._lock:
            if not self._ended:
                self._subscribers.add(subscriber)
            return not self._ended

    def leave(self, subscriber: Subscription) -> None:
        """Afterwards its descriptor isn't written to."""
        with self._lock:
            self._subscribers.discard(subscriber)
            for one in self._watched.values():
                one.masks.pop(subscriber, None)
            if self._subscribers:
                self._sweep()
            elif not self._ended:
                self._ended = True
                os.eventfd_write(self._stop, 1)
                self._inotify.close()

    def add(self, subscriber: Subscription, path: Path | str, mask: Mask) -> int:
        with self._lock:
            self._adding += 1
        try:
            # MASK_ADD keeps the events of other subscribers to the same file (inotify(7)).
            watch = self._inotify.add_watch(path, mask | Mask.MASK_ADD)
        except BaseException:
            with self._lock:
                self._adding -= 1
            raise
        with self._lock:
            self._adding -= 1
            masks = self._watched.setdefault(watch.wd, _Watched(watch)).masks
            masks[subscriber] = masks.get(subscriber, Mask(0)) | mask
            self._sweep()
        return watch.wd

    def remove(self, subscriber: Subscription, watch: int) -> None:
        with self._lock:
            if (one := self._watched.get(watch)) is not None:
                one.masks.pop(subscriber, None)
                self._sweep()

    def _sweep(self) -> None:
        """Removes watches without a subscriber."""
        if self._adding:
            return
        for watch in [watch for watch, one in self._watched.items() if not one.masks]:
            with contextlib.suppress(OSError):  # the directory was removed, and its watch with it
                self._inotify.rm_watch(self._watched[watch].watch)
            del self._watched[watch]

    def _run(self) -> None:
        while self._stop not in dict(self._poll.poll()):
            self.read()
        os.close(self._stop)

    def read(self) -> None:
        """Moves pending events into the queues."""
        with self._lock:
            if self._ended:
                return
            queues: dict[Subscription, list[FileEvent]] = {}
            for event in self._inotify:
                number = event.watch.wd if event.watch is not None else -1
                one = FileEvent(number, event.mask, None if event.name is None else str(event.name))
                # An overflow may have lost events of any watch, so all subscribers must look.
                if one.mask & Mask.Q_OVERFLOW:
                    masks = dict.fromkeys(self._subscribers, _FOR_ALL)
                else:
                    masks = self._watched[number].masks if number in self._watched else {}
                for subscriber, mask in masks.items():
                    if one.mask & (mask | _FOR_ALL):
                        queues.setdefault(subscriber, []).append(one)
                if one.mask & Mask.IGNORED:  # the kernel has removed the watch
                    self._watched.pop(number, None)
            for subscriber, events in queues.items():
                subscriber.put(events)


class Subscription(AbstractContextManager["Subscription"]):
    """The queue of one subscriber. Its methods may be called from any thread; :meth:`get` from the event loop."""

    def __init__(self) -> None:
        """Raises OSError, with EMFILE at the limit of instances."""
        self._events: deque[FileEvent] = deque()
        self._reading = threading.Lock()
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable while there are events."""
        # The shared instance is created if there is none, or it has just ended.
        global _shared  # noqa: PLW0603  one per process
        try:
            with _joining:
                if _shared is None or not _shared.join(self):
                    _shared = _Instance()
                    _shared.join(self)
                self._instance = _shared
        except OSError:
            os.close(self.descriptor)
            raise
        self._closed = False

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops unread events."""
        if not self._closed:
            self._closed = True
            self._instance.leave(self)
            os.close(self.descriptor)

    def add(self, path: Path | str, mask: Mask) -> int:
        """Adds ``mask`` to the events of the path, and returns the watch, which is the same for all paths of one file.
        Raises OSError.
        """
        return self._instance.add(self, path, mask)

    def remove(self, watch: int) -> None:
        """Queues no more events of this watch."""
        self._instance.remove(self, watch)

    def put(self, events: Iterable[FileEvent]) -> None:
        with self._reading:
            self._events.extend(events)
            if len(self._events) > MOST:
                self._events.clear()
                self._events.append(_OVERFLOW)
            os.eventfd_write(self.descriptor, 1)

    def read(self) -> list[FileEvent]:
        """All events until now."""
        self._instance.read()
        with self._reading:
            events = list(self._events)
            self._events.clear()
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)
        return events

    async def get(self) -> FileEvent:
        """The next event. Cancellation loses none."""
        while True:
            with self._reading:
                event = self._events.popleft() if self._events else None
                if not self._events:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self.descriptor)
            if event is not None:
                return event
            loop, readable = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self.descriptor, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(self.descriptor)


_joining = threading.Lock()
_shared: _Instance | None = None


@dataclass
class Watch(AbstractContextManager["Watch"]):
    """Events for a task that also polls, and so works without them: instances and watches can be used up, a directory
    may be missing, and not every file system makes events. Used from the event loop.
    """

    _events: Subscription | None = None
    failure: OSError | None = None
    """The last error of :meth:`add`."""

    def __exit__(self, *_: object) -> None:
        if self._events is not None:
            self._events.close()

    def add(self, path: Path, mask: Mask) -> int | None:
        """Adds the path. Returns its watch; None if it will have no events. May be tried again."""
        try:
            if self._events is None:
                self._events = Subscription()
            return self._events.add(path, mask)
        except OSError as error:
            self.failure = error
            return None

    def clear(self) -> None:
        """Drops the events until now. A look comes afterwards."""
        if self._events is not None:
            self._events.read()

    async def next(self, seconds: float | None = None) -> FileEvent | None:
        """The next event; None if none comes within ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                if self._events is not None:
                    return await self._events.get()
                await asyncio.get_running_loop().create_future()
        return None

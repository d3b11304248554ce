"""A value that changes, and ways to learn of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Observable(Generic[T]):
    """One owner publishes it, and any number of others on the same event loop watch it.

    It is a value with a version, not a queue of changes: all watchers see the same value, a slow watcher skips to the
    newest, and a watcher that stops takes nothing away from the others.
    """

    def __init__(self, value: T) -> None:
        self.value = value
        self.version = 0
        """How often the value has changed."""
        self._waiting: tuple[asyncio.Future[None], ...] = ()  # not an asyncio.Event, which takes 0.9 kB
        self._told: tuple[Callable[[], object], ...] = ()

    def publish(self, value: T) -> None:
        self.value = value
        self.version += 1
        waiting, self._waiting = self._waiting, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._tell()

    def amend(self, value: T) -> None:
        """Replaces the value and wakes nobody, because the difference matters to no watcher."""
        self.value = value
        self._tell()

    def touch(self) -> None:
        """The value is the same, but something that is shown beside it is another one."""
        self._tell()

    def tell(self, changed: Callable[[], object]) -> None:
        """``changed`` is called at once for each new value, also an amended one, and does no work: it is for those who
        follow hundreds of values, and look at them later.
        """
        if changed not in self._told:
            self._told = (*self._told, changed)

    def _tell(self) -> None:
        for changed in self._told:
            changed()

    async def newer(self, version: int) -> int:
        """Waits until the version is above ``version``, and returns it."""
        while self.version <= version:
            future = asyncio.get_running_loop().create_future()
            self._waiting = (*self._waiting, future)
            try:
                await future
            finally:
                self._waiting = tuple([one for one in self._waiting if one is not future])
        return self.version

    async def until(self, holds: Callable[[T], bool]) -> None:
        """Waits until the value is one for which ``holds`` is true."""
        while not holds(self.value):
            await self.newer(self.version)


class Bell:
    """Rings when something has changed, whatever it is; for those who then look at everything. Waiters don't hold up
    each other, and a ring costs nothing while nobody waits.
    """

    def __init__(self) -> None:
        self._heard: set[asyncio.Event] = set()

    def ring(self) -> None:
        """From the event loop's thread."""
        for event in self._heard:
            event.set()

    def ring_from(self, loop: asyncio.AbstractEventLoop) -> None:
        """From any thread; ``loop`` is the one of those who wait."""
        if self._heard:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(self.ring)

    def hear(self) -> asyncio.Event:
        """From now on each ring sets the event, which its waiter clears."""
        self._heard.add(event := asyncio.Event())
        return event

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """The same, but only within."""
        event = self.hear()
        try:
            yield event
        finally:
            self._heard.remove(event)

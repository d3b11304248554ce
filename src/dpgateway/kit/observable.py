"""Values and events that several tasks of one event loop watch.

A watcher waits for a version, or subscribes. Nothing is queued: all see the same value, a slow watcher skips to the
newest, and one that stops doesn't affect the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio

P = TypeVar("P")
T = TypeVar("T")


class Signal:
    """An event without a value; its version counts the occurrences."""

    def __init__(self) -> None:
        self.version = 0
        self._waiting: tuple[asyncio.Future[None], ...] = ()  # not an asyncio.Event, which takes 0.9 kB
        self._subscribers: tuple[Callable[[], object], ...] = ()

    def notify(self) -> None:
        """Wakes all waiters, and calls all subscribers."""
        self.version += 1
        waiting, self._waiting = self._waiting, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for changed in self._subscribers:
            changed()

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Calls ``changed`` synchronously at each change, so it must return quickly. Subscribing twice counts once."""
        if changed not in self._subscribers:
            self._subscribers = (*self._subscribers, changed)

    async def wait(self, version: int) -> int:
        """Returns the version once it is above ``version``."""
        from asyncio import get_running_loop  # noqa: PLC0415  40 ms, and the child that reads files waits for nothing

        while self.version <= version:
            future = get_running_loop().create_future()
            self._waiting = (*self._waiting, future)
            try:
                await future
            finally:
                self._waiting = tuple([one for one in self._waiting if one is not future])
        return self.version


class Observable(Signal, Generic[T]):
    """A value, set by one owner. Its version counts the values that were news."""

    def __init__(self, value: T, news: Callable[[T, T], bool] = operator.ne) -> None:
        """``news(new, old)``: whether to wake waiters. Subscribers are called for every new object."""
        super().__init__()
        self.value = value
        self._news = news

    def set(self, value: T) -> bool:
        """Returns whether it is news."""
        before, self.value = self.value, value
        if value is before:
            return False
        if self._news(value, before):
            self.notify()
            return True
        for changed in self._subscribers:
            changed()
        return False

    async def wait_other(self, part: Callable[[T], P], known: P) -> P:
        """Returns ``part(value)`` once it isn't equal to ``known``. Other changes don't wake the caller."""
        from asyncio import get_running_loop  # noqa: PLC0415  as above

        other: asyncio.Future[None] = get_running_loop().create_future()

        def compare() -> None:
            nonlocal known
            if (found := part(self.value)) is known or other.done():  # the usual case; comparing may be slow
                return
            if found == known:
                known = found
            else:
                other.set_result(None)

        self.subscribe(compare)
        compare()
        try:
            await other
        finally:
            self._subscribers = tuple(one for one in self._subscribers if one is not compare)
        return part(self.value)

    async def wait_for(self, holds: Callable[[T], object]) -> None:
        """Returns once ``holds(value)`` is true."""
        while not holds(self.value):
            await self.wait(self.version)

"""A value that changes, and a way to wait for its next change."""

from __future__ import annotations

import asyncio
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
        self._changed = asyncio.Event()

    def publish(self, value: T) -> None:
        self.value = value
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def amend(self, value: T) -> None:
        """Replaces the value and wakes nobody, because the difference matters to no watcher."""
        self.value = value

    async def newer(self, version: int) -> int:
        """Waits until the version is above ``version``, and returns it."""
        while self.version <= version:
            await self._changed.wait()
        return self.version

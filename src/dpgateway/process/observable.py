"""A value that changes, and a way to wait for its next change."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Observable(Generic[T]):
    """Owned by one, watched by any number of others on the same event loop.

    It is a value with a version, not a queue of changes: all who watch see the same value, a slow one skips to the
    newest, and one that stops watching takes nothing away from the others.
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
        """Sets a value whose difference matters to nobody who waits."""
        self.value = value

    async def newer(self, version: int) -> int:
        """The version of now as soon as it is above ``version``; at once if it already is."""
        while self.version <= version:
            await self._changed.wait()
        return self.version

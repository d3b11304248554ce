"""Says again what is still wrong, because the line that said it first may be days old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY = 600.0
"""Seconds."""


class Reminder:
    """Used from the event loop. There is a timer only while something is wrong."""

    def __init__(self, say: Callable[[str, float], object]) -> None:
        """``say``: called with what is wrong, and for how many seconds something has been."""
        self._say = say
        self._trouble = ""
        self.since: float | None = None
        """When something went wrong, by the event loop's clock; None while nothing is."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def hear(self, trouble: str) -> None:
        """What is wrong now; empty: nothing. When it changes, its age goes on."""
        self._trouble = "" if self._closed else trouble
        if not self._trouble:
            self._stop()
        elif self._timer is None:
            self.since = asyncio.get_running_loop().time()
            self._start()

    def close(self) -> None:
        """Nothing is said any more."""
        self._closed = True
        self._stop()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._tell)

    def _stop(self) -> None:
        self.since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        self._start()
        now = asyncio.get_running_loop().time()
        self._say(self._trouble, now - (self.since or now))

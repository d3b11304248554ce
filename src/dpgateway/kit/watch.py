"""Events of inotify for a task that looks from time to time anyway, so that it survives when there are none.

The instances and watches of inotify can be used up, a directory may be missing, and not every file system makes events.
Add first, then look: what happens until :meth:`Watch.add` has returned may make no event.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self

from asyncinotify import Mask

from dpgateway.kit.inotify import Event, Subscription


class Watch:
    """Used from the event loop."""

    def __init__(self) -> None:
        self._events: Subscription | None = None
        self.failure: OSError | None = None
        """Why something couldn't be added."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._events is not None:
            self._events.close()

    def add(self, path: Path, mask: Mask) -> int | None:
        """The watch, which the events name; None if there will be no events of the path. May be tried again."""
        try:
            if self._events is None:
                self._events = Subscription()
            return self._events.add(path, mask)
        except OSError as error:
            self.failure = error
            return None

    async def next(self, seconds: float | None = None) -> Event | None:
        """The next event; None if there is none for so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                if self._events is not None:
                    return await self._events.get()
                await asyncio.get_running_loop().create_future()
        return None

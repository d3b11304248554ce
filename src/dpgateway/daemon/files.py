"""Watches the configuration: a file, or the entries of a directory.

inotify events and a timer only trigger a look; each look is compared with the last one. A mounted ConfigMap changes by
its ``..data``, a link beside the files that the kubelet replaces by a rename (AtomicWriter in
pkg/volume/util/atomic_writer.go, every release).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from asyncinotify import Mask

from dpgateway.config.files import MISNAMED
from dpgateway.kit.inotify import Watch
from dpgateway.kit.tasks import aligned
from dpgateway.kit.threads import Threads

T = TypeVar("T")

POLL = 10.0
"""Seconds between two looks without an event."""
DEBOUNCE = 0.2
"""Debounce time in seconds: editors and copies make several changes in a row."""

_ENTRY = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.CLOSE_WRITE | Mask.ATTRIB
_WATCHED = _ENTRY | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR

_NAMED = {".yaml", *MISNAMED}
"""Suffixes of the files of a directory that are read, or that the gateway warns of."""

_Found = tuple[tuple[object, ...], ...]


class FileWatch:
    """Detects every change since the object was created."""

    def __init__(self, path: Path, poll: float = POLL) -> None:
        """``path``: absolute. ``poll``: seconds."""
        self._path, self._last, self._poll = path, _look(path), poll
        self._threads = Threads(idle=0)  # a disk may hang

    async def run(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` after each change, until cancelled."""
        while True:
            # Fresh watches after each change, because a directory may have been replaced.
            with Watch() as watch:
                event = None
                while True:
                    # Watches come before the look, also on new directories: later changes make events.
                    for directory in await self._on_thread(lambda: set(_directories(self._path))):
                        watch.add(directory, _WATCHED)
                    if await self._on_thread(partial(_look, self._path)) != self._last:
                        break
                    if event is not None:  # of a file that isn't read: it may have a thousand in a second
                        await asyncio.sleep(DEBOUNCE)
                        watch.clear()
                        event = None
                    else:
                        event = await watch.next(aligned(self._poll))
            before = None
            while (now := await self._on_thread(partial(_look, self._path))) != before:
                before = now
                await asyncio.sleep(DEBOUNCE)
            self._last = now
            changed()

    async def _on_thread(self, function: Callable[[], T]) -> T:
        return await self._threads.call("look at the configuration", function)


def _look(path: Path) -> _Found:
    """The names, each with the state of its file. Other files of a directory may change all the time."""
    files = [path]
    with contextlib.suppress(OSError):
        files += sorted(one for one in path.iterdir() if one.suffix in _NAMED and not one.name.startswith("."))
    states: list[tuple[object, ...]] = []
    for file in files:
        try:
            found = file.stat()
        except OSError as error:
            states.append((str(file), error.errno))
            continue
        own = found.st_mode, found.st_uid  # a directory's times change with its entries, which are here, too
        content = found.st_size, found.st_mtime_ns, found.st_ctime_ns
        states.append((str(file), found.st_dev, found.st_ino, *(own if file.is_dir() else content)))
    return tuple(states)


def _directories(path: Path) -> Iterator[Path]:
    """The directories with the names that lead to the file, or to the directory's entries."""
    for place in (path, Path(os.path.realpath(path))):
        yield place.parent
        if place.is_dir():
            yield place

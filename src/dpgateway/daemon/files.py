"""Watches the configuration: a file, or what is directly in a directory.

inotify's events are only hints to look, and so is the passing of time: what a look finds is compared with what the last
one found. A mounted ConfigMap changes by its ``..data``, a link beside the files, which the kubelet renames over the
older one (AtomicWriter in pkg/volume/util/atomic_writer.go, every release).
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

from dpgateway.kit.inotify import Watch
from dpgateway.kit.tasks import aligned
from dpgateway.kit.threads import Threads

T = TypeVar("T")

POLL = 10.0
"""Seconds between two looks without an event."""
SETTLING = 0.2
"""Seconds without a change that end a change: editors and copies make several in a row."""

_ENTRY = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.CLOSE_WRITE | Mask.ATTRIB
_WATCHED = _ENTRY | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR

_Found = tuple[tuple[object, ...], ...]


class FileWatch:
    """Notices what changes from the moment when it is made."""

    def __init__(self, path: Path, poll: float = POLL) -> None:
        """``path`` is absolute."""
        self._path, self._last, self._poll = path, _look(path), poll
        self._threads = Threads(idle=0)  # a disk may hang

    async def run(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` after each change, until it is cancelled."""
        while True:
            with Watch() as watch:
                while await self._watched_look(watch) == self._last:
                    await watch.next(aligned(self._poll))
            before = None
            while (now := await self._on_thread(partial(_look, self._path))) != before:
                before = now
                await asyncio.sleep(SETTLING)
            self._last = now
            changed()

    async def _watched_look(self, watch: Watch) -> _Found:
        """What changes after it makes an event, also in directories that weren't there at the last one."""
        for directory in await self._on_thread(lambda: set(_directories(self._path))):
            watch.add(directory, _WATCHED)
        return await self._on_thread(partial(_look, self._path))

    async def _on_thread(self, function: Callable[[], T]) -> T:
        return await self._threads.call("look at the configuration", function)


def _look(path: Path) -> _Found:
    """Each name, and the state of the file that has it."""
    files = [path]
    with contextlib.suppress(OSError):
        files += sorted(path.iterdir())
    return tuple(_state(file) for file in files)


def _state(file: Path) -> tuple[object, ...]:
    try:
        found = file.stat()
    except OSError as error:
        return str(file), error.errno
    if file.is_dir():
        return str(file), found.st_dev, found.st_ino, found.st_mode, found.st_uid
    return str(file), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _directories(path: Path) -> Iterator[Path]:
    """Those with names that lead to the file, or to what is in the directory."""
    for place in (path, Path(os.path.realpath(path))):
        yield place.parent
        if place.is_dir():
            yield place

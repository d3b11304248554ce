"""Says when a file, or what is directly in a directory, has become another.

What inotify tells is only a hint to look, and so is time: what was seen is compared with what is there. A mounted
ConfigMap is seen to change by its ``..data``, a link beside the files, which the kubelet renames over the older one
(AtomicWriter in pkg/volume/util/atomic_writer.go, every release).
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

from dpgateway.kit.tasks import aligned
from dpgateway.kit.threads import Threads
from dpgateway.kit.watch import Watch

T = TypeVar("T")

POLL = 10.0
"""Seconds between two looks without a hint."""
SETTLING = 0.2
"""Seconds in which nothing may change any more: editors and copies make several changes, one after the other."""

_ENTRY = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.CLOSE_WRITE | Mask.ATTRIB
_WATCHED = _ENTRY | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR

Seen = tuple[tuple[object, ...], ...]


class FileWatch:
    """One task: :meth:`run`. What changes between the making of this and the task's start is seen, too."""

    def __init__(self, path: Path, poll: float = POLL) -> None:
        """``path`` is absolute."""
        self._path, self._seen, self._poll = path, _look(path), poll
        self._threads = Threads(idle=0)  # a disk may hang

    async def run(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` after each change, until it is cancelled."""
        while True:
            await self._hint()
            if await self._changed():
                changed()

    async def _hint(self) -> None:
        """Returns when something may have changed."""
        with Watch() as watch:
            while await self._watched_look(watch) == self._seen:
                if await watch.next(aligned(self._poll)) is not None:
                    return

    async def _watched_look(self, watch: Watch) -> Seen:
        """What changes after it makes an event, also in directories that weren't there at the last one."""
        for directory in await self._on_thread(lambda: set(_directories(self._path))):
            watch.add(directory, _WATCHED)
        return await self._look()

    async def _changed(self) -> bool:
        now = await self._look()
        if now == self._seen:
            return False
        before = None
        while now != before:
            await asyncio.sleep(SETTLING)
            before, now = now, await self._look()
        self._seen = now
        return True

    async def _look(self) -> Seen:
        return await self._on_thread(partial(_look, self._path))

    async def _on_thread(self, function: Callable[[], T]) -> T:
        return await self._threads.call("look at the configuration", function)


def _look(path: Path) -> Seen:
    """Which file has each name, and its state."""
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
    """Where the names are that lead to the file, or to what is in the directory."""
    for place in (path, Path(os.path.realpath(path))):
        yield place.parent
        if place.is_dir():
            yield place

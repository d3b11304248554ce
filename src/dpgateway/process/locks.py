"""Waits for a file's lock (flock) without a thread, because a thread that waits in flock(2) can't be called back.

The kernel tells when somebody closes the file, which ends their lock, or their process does. It tells that just before
the lock is free (fs/file_table.c, __fput), so the file is tried again after pauses that begin small.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from pathlib import Path

from asyncinotify import Inotify, Mask

FIRST_PAUSE, LONGEST_PAUSE = 0.001, 1.0
"""Seconds between two tries: the first pause after somebody closed the file, doubling up to the longest."""
LONGEST_BLIND = 0.1
"""The longest pause without inotify, whose instances and watches can be used up."""


def take(descriptor: int) -> bool:
    """Takes the lock if nobody has it. Raises OSError if the file can't be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def wait(descriptor: int) -> None:
    """Returns when the lock is taken. Raises OSError if the file can't be locked."""
    with contextlib.ExitStack() as stack:
        inotify = _watch(descriptor, stack)
        longest = LONGEST_PAUSE if inotify is not None else LONGEST_BLIND
        pause = FIRST_PAUSE
        while not take(descriptor):
            pause = FIRST_PAUSE if await _closed(inotify, pause) else min(2 * pause, longest)


def _watch(descriptor: int, stack: contextlib.ExitStack) -> Inotify | None:
    with contextlib.suppress(OSError):
        inotify = stack.enter_context(Inotify())
        opened = Path(f"/proc/self/fd/{descriptor}")  # its name may be another file's by now
        inotify.add_watch(opened, Mask.CLOSE_WRITE)
        return inotify
    return None


async def _closed(inotify: Inotify | None, seconds: float) -> bool:
    """Whether somebody closes the file before the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if inotify is None:
                await asyncio.get_running_loop().create_future()
            else:
                await inotify.get()
            return True
    return False

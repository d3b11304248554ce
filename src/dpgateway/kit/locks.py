"""Waits for a file's lock (flock) without a thread, because a thread that waits in flock(2) can't be called back.

inotify reports a close of the file, which releases the owner's lock, just before the lock is free (fs/file_table.c,
__fput). So after the event the lock is tried repeatedly, with backoff from a short pause.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

from asyncinotify import Mask

from dpgateway.kit.inotify import Watch

FIRST_PAUSE, LONGEST_PAUSE = 0.001, 1.0
"""Seconds between two tries: after a close of the file, and at most."""
LONGEST_BLIND = 0.1
"""The longest pause without inotify, whose instances and watches can be used up."""


def take(descriptor: int) -> bool:
    """Takes the lock if it is free. Raises OSError if the file can't be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(descriptor: int) -> bool:
    """Whether the lock is free; others may ask at the same time. Raises OSError if the file can't be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


async def wait(descriptor: int, pause: float = FIRST_PAUSE, vain: Callable[[], bool] = lambda: False) -> None:
    """Returns once the lock is taken, or it makes no sense to wait any longer (``vain``). Raises OSError if the file
    can't be locked.

    ``pause``: seconds until the second try, without an event.
    """
    with Watch() as watch:
        watch.add(Path(f"/proc/self/fd/{descriptor}"), Mask.CLOSE_WRITE)  # its name may be another file's by now
        longest = LONGEST_PAUSE if watch.failure is None else LONGEST_BLIND
        while not take(descriptor) and not vain():
            closed = await watch.next(pause)
            pause = FIRST_PAUSE if closed else min(2 * pause, longest)

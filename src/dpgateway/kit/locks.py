"""Waits for a file's lock (flock) without a thread, because a thread that waits in flock(2) can't be called back.

The kernel tells when somebody closes the file, which ends their lock, or their process does. It tells that just before
the lock is free (fs/file_table.c, __fput), so the file is tried again after pauses that begin small.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from asyncinotify import Mask

from dpgateway.kit.inotify import Watch

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


def is_free(descriptor: int) -> bool:
    """Whether nobody has the lock. Others may ask at the same time. Raises OSError if the file can't be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


async def wait(descriptor: int, pause: float = FIRST_PAUSE) -> None:
    """Returns when the lock is taken. Raises OSError if the file can't be locked.

    ``pause``: seconds until it is tried again, if nobody closes the file before.
    """
    with Watch() as watch:
        watch.add(Path(f"/proc/self/fd/{descriptor}"), Mask.CLOSE_WRITE)  # its name may be another file's by now
        longest = LONGEST_PAUSE if watch.failure is None else LONGEST_BLIND
        while not take(descriptor):
            closed = await watch.next(pause)
            pause = FIRST_PAUSE if closed else min(2 * pause, longest)

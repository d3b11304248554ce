"""Settings of the process's heap and garbage collector.

glibc gives each new thread a heap of its own, up to 8 for each core, and doesn't share freed memory between heaps. The
gateway gains little from many heaps, because all threads but gRPC's hold the interpreter's lock to run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

_M_ARENA_MAX = -8
"""malloc.h; the same as the environment variable MALLOC_ARENA_MAX."""


def share_one_heap() -> None:
    """All threads allocate from the first thread's heap. Without glibc it does nothing."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def keep_what_is_there() -> None:
    """Excludes all present objects from garbage collection: modules and configuration stay until the end.

    A full collection takes noticeably long, and may come while a kubelet waits for lists.
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Returns free memory of the heap to the kernel, which takes a while. Without glibc it does nothing.

    By itself glibc returns only the end of the heap, which is rarely free (malloc_trim(3)).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)

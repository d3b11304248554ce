"""How the process handles its memory: settings of the whole process, and what becomes of memory that is free.

glibc gives each new thread a heap of its own, up to 8 for each core. Memory that is freed in one heap isn't used by the
others. The gateway gains little from many heaps, because all threads but gRPC's hold the interpreter's lock to run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

_M_ARENA_MAX = -8
"""malloc.h; the same as the environment variable MALLOC_ARENA_MAX."""


def share_one_heap() -> None:
    """All threads take their memory from the first thread's heap. Does nothing with another C library than glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def keep_what_is_there() -> None:
    """Tells the garbage collector not to look at the modules and the configuration again; they stay until the end.

    A collection of everything takes long enough to be noticed, and may come while a kubelet waits for lists.
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Gives the kernel what is free in the heap: not for a moment in which somebody waits. Does nothing with another C
    library than glibc.

    glibc does so by itself only at the heap's end, and what stays is rarely what was allocated first (malloc_trim(3)).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)

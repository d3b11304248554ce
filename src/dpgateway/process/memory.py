"""How the process handles its memory: settings of the whole process, made once at its start.

glibc gives each new thread a heap of its own, up to 8 for each core, and what is freed in one isn't used by the others.
The gateway's threads do little at once, for all but gRPC's hold the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

_M_ARENA_MAX = -8
"""malloc.h; the same as the environment variable MALLOC_ARENA_MAX."""


def share_one_heap() -> None:
    """All threads take their memory from the first thread's heap. Another C library than glibc is left alone."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def keep_what_is_there() -> None:
    """The garbage collector needn't look at the modules and the configuration again: they stay until the end.

    Looking at everything takes long enough to be seen, and comes at any time, also when a kubelet waits for lists.
    """
    gc.collect()
    gc.freeze()

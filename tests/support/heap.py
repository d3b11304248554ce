"""Memory that is free, but that the C library keeps."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE, COUNT = 50_000, 400
"""Bytes, and how many: 20 MB, all of it in the heap, because each is below 128 kB (mallopt(3), M_MMAP_THRESHOLD)."""


@contextmanager
def hole() -> Iterator[None]:
    """Within, 20 MB in the heap are free: the last of what was allocated keeps the heap's end where it is."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    places = [libc.malloc(SIZE) for _ in range(COUNT)]
    for place in places:
        ctypes.memset(place, 1, SIZE)
    places.remove(last := max(places))
    for place in places:
        libc.free(ctypes.c_void_p(place))
    try:
        yield
    finally:
        libc.free(ctypes.c_void_p(last))


def resident() -> float:
    """MB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

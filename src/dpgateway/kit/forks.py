"""Descriptors that a child doesn't inherit when a driver forks without exec.

A lock lives as long as any copy of its descriptor, so a child that outlives the gateway would keep the next one out.
"""

from __future__ import annotations

import contextlib
import os

_ours: set[int] = set()


def withhold(descriptor: int) -> int:
    """Children don't get this descriptor, until it is closed with :func:`close`."""
    _ours.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    _ours.discard(descriptor)
    os.close(descriptor)


def _close_in_child() -> None:
    for descriptor in _ours:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _ours.clear()


os.register_at_fork(after_in_child=_close_in_child)

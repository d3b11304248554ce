"""Time stamps for people and programs: RFC 3339, UTC, to the second."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache

LATEST = 2**37
"""The latest time that is written, or believed, in seconds since 1970: ``datetime`` ends with the year 9999."""


def timestamp(seconds: float | None = None) -> str:
    """``seconds``: since 1970; by default now."""
    return _written(int(min(time.time() if seconds is None else seconds, LATEST)))


@lru_cache(maxsize=128)
def _written(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")

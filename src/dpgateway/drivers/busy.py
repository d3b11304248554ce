"""Asks a Busy driver again, in calls that the kubelet doesn't repeat: Allocate is sent once (every release)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dpgateway.errors import Busy

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds before the driver is asked again: the first pause, doubling up to the longest."""
LAST_CHANCE = 0.1
"""Seconds before the deadline at which it is asked for the last time."""


async def persist(ask: Callable[[float], Awaitable[T]], deadline: float) -> T:
    """What ``ask`` returns in the end. ``deadline``: seconds for all attempts; ``ask`` gets their end, as
    time.monotonic(). Raises Busy if the driver still is in the last one.
    """
    end, pause = time.monotonic() + deadline, FIRST_PAUSE
    while True:
        try:
            return await ask(end)
        except Busy:
            left = end - LAST_CHANCE - time.monotonic()
            if left <= 0:
                raise
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)

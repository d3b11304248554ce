"""The pools that the API server refuses while it takes others, as a webhook's 403 does: each rests by itself.

Its pauses double. Within one it is tried again after SOONEST, once there is news.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping
from typing import NamedTuple

from dpgateway.cluster.errors import ClusterError
from dpgateway.kit.tasks import backoff

LONGEST_PAUSE = 60.0
"""Seconds between two attempts that fail."""
SOONEST = 5.0
"""Seconds after an attempt that failed until what can't wait may be tried again."""


class _Refusal(NamedTuple):
    error: ClusterError
    failures: int
    soonest: float
    """When it may be tried again if there is news, on the clock of the loop; ``due``: in any case."""
    due: float
    news: int
    """The version of the news that isn't any."""


class RefusedPools:
    """Used from the event loop."""

    def __init__(self) -> None:
        self._by_pool: dict[str, _Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._by_pool)

    @property
    def errors(self) -> list[ClusterError]:
        return [one.error for one in self._by_pool.values()]

    def add(self, pool: str, error: ClusterError, news: int) -> None:
        """``news``: the version of those that the attempt knew."""
        failures = self._by_pool[pool].failures + 1 if pool in self._by_pool else 1
        # At random: a thousand nodes may be refused in one second.
        pause = backoff(failures, LONGEST_PAUSE) * random.uniform(0.5, 1.5)  # noqa: S311
        soonest, now = max(min(pause, SOONEST), error.after), asyncio.get_running_loop().time()
        self._by_pool[pool] = _Refusal(error, failures, now + soonest, now + max(pause, soonest), news)

    def times(self, news: int) -> Mapping[str, float]:
        """When each pool is tried again, on the clock of the loop. ``news``: their version now."""
        return {name: one.soonest if news > one.news else one.due for name, one in self._by_pool.items()}

    def resting(self, news: int) -> frozenset[str]:
        """The pools that aren't tried yet."""
        now = asyncio.get_running_loop().time()
        return frozenset([name for name, again in self.times(news).items() if again > now])

    def keep(self, pools: Collection[str] = ()) -> None:
        """Forgets all but these: they are as they should be."""
        self._by_pool = {name: one for name, one in self._by_pool.items() if name in pools}

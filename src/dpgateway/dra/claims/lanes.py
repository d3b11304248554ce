"""Calls of one claim come one after the other; those of different claims don't wait for one another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class ClaimLanes:
    """Used from the event loop."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[Any]] = {}
        """`_last` contains the last call of each claim that has one under way, keyed by uid."""

    @property
    def running(self) -> frozenset[asyncio.Future[Any]]:
        """The last call of each claim that has one under way."""
        return frozenset(self._last.values())

    def call(self, uid: str, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Calls once the claim's earlier call is over. The caller may stop waiting; the call goes on."""
        before = self._last.get(uid)

        async def after() -> T:
            if before is not None:
                await asyncio.wait({before})
            return await work()

        lane = asyncio.create_task(after(), name=f"claim {uid}")
        self._last[uid] = lane
        lane.add_done_callback(partial(self._over, uid))
        return lane

    def _over(self, uid: str, lane: asyncio.Future[Any]) -> None:
        if self._last.get(uid) is lane:
            del self._last[uid]
        # Nobody may be waiting any more, as after the kubelet's end: asyncio would log such a failure as unnoticed.
        if not lane.cancelled():
            lane.exception()

"""The allocate lane: ``allocate`` and ``prefer``, one call at a time, each with its deadline.

When a deadline passes, the RPC fails and a new thread takes the lane; what the old one answers in the end is dropped,
and its devices released. Waiting for one's turn counts. With MOST_STUCK threads hanging, calls fail at once: a fifth
would hang, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from dpgateway.drivers.answers import fault
from dpgateway.errors import DriverTimeout
from dpgateway.process.worker import Worker

T = TypeVar("T")

MOST_STUCK = 4


@dataclass(slots=True)
class _Running:
    """A call of the driver."""

    method: str
    since: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.method}() for {time.monotonic() - self.since:.0f} s"


class AllocateLane:
    """Used from the event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker = Worker(f"{name} allocate")
        self._turn = asyncio.Lock()
        self._queued = 0
        """Who waits for a turn; with nobody, a free lock is taken at once, and needs no timer."""
        self._current: _Running | None = None
        self._stuck: dict[asyncio.Future[Any], _Running] = {}

    async def call(
        self,
        method: str,
        function: Callable[[], T],
        deadline: float,
        late: Callable[[T], None] | None = None,
        end: float | None = None,
    ) -> T:
        """Runs ``function`` when it is its turn; ``deadline``: seconds for both, counted to ``end`` if it is an attempt
        of several. ``late`` gets a dropped result.
        """
        end = time.monotonic() + deadline if end is None else end
        await self._take_turn(method, end, deadline)
        try:
            if len(self._stuck) >= MOST_STUCK:
                calls = ", ".join(map(str, self._stuck.values()))
                raise DriverTimeout(f"{method}() isn't called, for {MOST_STUCK} calls hang: {calls}")
            self._current = _Running(method)
            future = await self._answered(self._worker.call(function), end - time.monotonic(), late)
        finally:
            self._turn.release()
        if future is None:
            raise DriverTimeout(f"{method}() hasn't answered for {deadline:g} s")
        try:
            return future.result()
        except Exception as error:
            raise fault(method, error) from error

    async def _take_turn(self, method: str, end: float, deadline: float) -> None:
        if not self._queued and not self._turn.locked():
            await self._turn.acquire()
            return
        self._queued += 1
        try:
            async with asyncio.timeout(end - time.monotonic()):
                await self._turn.acquire()
        except TimeoutError:
            raise DriverTimeout(f"{method}() wasn't called within {deadline:g} s, behind {self._current}") from None
        finally:
            self._queued -= 1

    async def _answered(
        self, future: asyncio.Future[T], seconds: float, late: Callable[[T], None] | None
    ) -> asyncio.Future[T] | None:
        """The future once it is done; None when the time is over."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        timer = loop.call_later(max(0.0, seconds), _tell, over, None)
        future.add_done_callback(partial(_tell, over))
        done = False
        try:
            await over
            done = future.done()
        finally:
            timer.cancel()
            if not done:  # the deadline, or the RPC was cancelled, be it in the moment of the answer
                self._abandon(future, late)
        return future if done else None

    def close(self) -> None:
        """The driver ended: its thread isn't needed any more."""
        self._worker.retire()

    def _abandon(self, future: asyncio.Future[T], late: Callable[[T], None] | None) -> None:
        self._worker.retire()
        self._worker = Worker(f"{self._name} allocate")
        assert self._current is not None  # noqa: S101  the call that is given up
        self._stuck[future] = self._current
        future.add_done_callback(lambda done: self._came_late(done, late))

    def _came_late(self, future: asyncio.Future[T], late: Callable[[T], None] | None) -> None:
        self._stuck.pop(future, None)
        if not future.cancelled() and future.exception() is None and late is not None:
            late(future.result())


def _tell(over: asyncio.Future[None], _: object) -> None:
    if not over.done():
        over.set_result(None)

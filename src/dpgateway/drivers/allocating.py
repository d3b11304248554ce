"""The allocate lane: ``allocate`` and ``prefer``, one call at a time, each with its deadline.

When a deadline passes, the call fails, and the next call takes the lane. What the driver returns after that is dropped,
and the caller is told, so that the devices can be released. The time that a call waits for its turn counts. While
MOST_STUCK calls hang, further calls fail at once: a fifth would hang, too.

A caller that is cancelled waits no longer, but its call keeps the lane until it answers or its deadline passes. So a
slow driver doesn't get more calls at once because kubelets come and go; and a call hangs only past its deadline.
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
from dpgateway.kit.threads import Threads

T = TypeVar("T")

MOST_STUCK = 4


@dataclass(slots=True)
class _Call:
    """A call of the driver."""

    method: str
    since: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.method}() for {time.monotonic() - self.since:.0f} s"


class AllocateLane:
    """Used from the event loop."""

    def __init__(self, name: str, threads: Threads) -> None:
        self._name, self._threads = name, threads
        self._turn = asyncio.Lock()
        self._queued = 0
        """How many calls wait for their turn. While none does, a free lock is taken at once, without a timer."""
        self._current: _Call | None = None
        self._stuck: dict[asyncio.Future[Any], _Call] = {}

    async def call(
        self, method: str, function: Callable[[], T], seconds: float, end: float, late: Callable[[], None] | None = None
    ) -> T:
        """Runs ``function`` when its turn comes. ``end``: the deadline by time.monotonic(), which is ``seconds`` after
        the first attempt. ``late`` is called if the driver returns something after that.
        """
        await self._take_turn(method, end, seconds)
        if len(self._stuck) >= MOST_STUCK:
            self._turn.release()
            calls = ", ".join(map(str, self._stuck.values()))
            raise DriverTimeout(f"{method}() isn't called, because {MOST_STUCK} calls hang: {calls}")
        self._current = _Call(method)
        future = self._threads.call(f"{self._name} {method}", function, end - time.monotonic())
        if not await self._answered(future, end, late):
            raise DriverTimeout(f"{method}() hasn't answered for {seconds:g} s")
        try:
            return future.result()
        except Exception as error:
            raise fault(method, error) from error

    async def _take_turn(self, method: str, end: float, seconds: float) -> None:
        if not self._queued and not self._turn.locked():
            await self._turn.acquire()
            return
        self._queued += 1
        try:
            async with asyncio.timeout(end - time.monotonic()):
                await self._turn.acquire()
        except TimeoutError:
            raise DriverTimeout(f"{method}() wasn't called within {seconds:g} s, behind {self._current}") from None
        finally:
            self._queued -= 1

    async def _answered(self, future: asyncio.Future[Any], end: float, late: Callable[[], None] | None) -> bool:
        """Waits until the future is done; False when the time is over. The turn ends with the call, or at ``end``."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        timer = loop.call_later(max(0.0, end - time.monotonic()), _tell, over, None)
        future.add_done_callback(partial(_tell, over))
        try:
            await over
        except asyncio.CancelledError:  # perhaps just as the answer came
            self._abandon(future, max(0.0, end - time.monotonic()), late)
            raise
        finally:
            timer.cancel()
        if not future.done():
            self._abandon(future, 0.0, late)
            return False
        self._turn.release()
        return True

    def _abandon(self, future: asyncio.Future[Any], left: float, late: Callable[[], None] | None) -> None:
        """Nobody waits for the call any more. It has its turn for the seconds that are left; after that it hangs."""
        assert self._current is not None  # noqa: S101  the call that is given up
        timer = None
        if left:
            timer = asyncio.get_running_loop().call_later(left, self._hang, future, self._current)
        else:
            self._hang(future, self._current)
        future.add_done_callback(lambda done: self._came_late(done, late, timer))

    def _hang(self, future: asyncio.Future[Any], call: _Call) -> None:
        self._stuck[future] = call
        self._turn.release()

    def _came_late(
        self, future: asyncio.Future[Any], late: Callable[[], None] | None, timer: asyncio.TimerHandle | None
    ) -> None:
        if timer is not None:
            timer.cancel()
        if self._stuck.pop(future, None) is None:
            self._turn.release()
        if future.exception() is None and late is not None:
            late()


def _tell(over: asyncio.Future[None], _: object) -> None:
    if not over.done():
        over.set_result(None)

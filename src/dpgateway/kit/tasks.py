"""Helpers for asyncio: retry with backoff, a race, no cancellation, a timeout, wake-ups aligned across tasks, and calls
of one thing one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST_PAUSE = 60.0
"""Seconds."""


def backoff(failures: int, longest: float, first: float = 1.0) -> float:
    """Seconds to wait after so many failures in a row: ``first``, then twice as long each time, up to ``longest``."""
    doublings = min(failures - 1, 40)  # days of failures would be more than a float holds
    return min(longest, first * 2.0**doublings)


def aligned(seconds: float) -> float:
    """Seconds until a whole multiple of ``seconds``, between half and one and a half of ``seconds`` away.

    Aligns periodic tasks: a process that wakes finds its code and data outside the processor's caches, so many tasks
    that wake together cost little more than one.
    """
    left = seconds - asyncio.get_running_loop().time() % seconds
    return left if left > seconds / 2 else left + seconds


async def retry(
    run: Callable[[], Awaitable[None]],
    failed: Callable[[Exception], object],
    *,
    first: float = 1.0,
    longest: float = LONGEST_PAUSE,
) -> None:
    """Runs ``run`` again after each exception, until it returns. ``failed`` gets the exception, and may raise it.

    Pauses double from ``first`` to ``longest`` seconds, and begin anew after a run that lasted over LONGEST_PAUSE.
    """
    failures = 0
    while True:
        began = time.monotonic()
        try:
            return await run()
        except Exception as error:
            failures = 1 if time.monotonic() - began > LONGEST_PAUSE else failures + 1
            failed(error)
            if (task := asyncio.current_task()) is not None and task.cancelling():  # an error came up while it ended
                raise asyncio.CancelledError from error
        await asyncio.sleep(backoff(failures, longest, first))


async def first(*awaited: Coroutine[Any, Any, object], within: float | None = None) -> None:
    """Awaits the first to return, ``within`` seconds at most, and cancels the others. Raises its exception."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        for done in (await asyncio.wait(tasks, timeout=within, return_when=asyncio.FIRST_COMPLETED))[0]:
            done.result()
    finally:
        for task in tasks:
            task.cancel()


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``. A cancellation of the caller doesn't interrupt it, and is raised afterwards."""
    task = asyncio.create_task(work, name="uncancelled")
    interrupted = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted from task.exception()
    return task.result()


async def wait_for(work: Awaitable[T], seconds: float, what: str = "it") -> T:
    """The result of ``work``. After ``seconds`` cancels it and raises TimeoutError, which names ``what``; also in a
    task that is being cancelled.

    In such a task ``asyncio.timeout`` raises CancelledError before Python 3.11.4 (python/cpython#102780), which would
    skip the rest of the clean-up. ``asyncio.wait_for`` loses a cancellation before Python 3.12 (python/cpython#86296).
    """
    task = asyncio.ensure_future(work)
    try:
        if not (await asyncio.wait({task}, timeout=seconds))[0]:
            raise TimeoutError(f"{what} hasn't answered for {seconds:g} s")
    finally:
        task.cancel()
    return task.result()


class KeyedLanes:
    """Calls of one key come one after the other; those of different keys don't wait for one another."""

    def __init__(self, kind: str) -> None:
        """``kind``: of the things that the keys stand for, for the names of the tasks."""
        self._kind = kind
        self._last: dict[str, asyncio.Future[Any]] = {}
        """`_last` contains the last call of each key that has one under way."""

    @property
    def running(self) -> frozenset[asyncio.Future[Any]]:
        """The last call of each key that has one under way."""
        return frozenset(self._last.values())

    def last(self, key: str) -> asyncio.Future[Any] | None:
        """The key's last call that is under way, or None."""
        return self._last.get(key)

    def call(self, key: str, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Calls once the key's earlier call is over. The caller may stop waiting; the call goes on."""
        before = self._last.get(key)

        async def after() -> T:
            if before is not None:
                await asyncio.wait({before})
            return await work()

        lane = asyncio.create_task(after(), name=f"{self._kind} {key}")
        self._last[key] = lane
        lane.add_done_callback(partial(self._over, key))
        return lane

    async def within(self, key: str, work: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
        """The result of a call, or a TimeoutError that names ``what`` after ``seconds``: the call goes on."""
        return await wait_for(asyncio.shield(self.call(key, work)), seconds, what)

    async def in_turn(self, key: str, work: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
        """The same, but a call that times out before its turn never begins, so no more than one call hangs."""

        async def turn() -> T:
            while (busy := self.last(key)) is not None:
                await asyncio.wait({busy})
            return await asyncio.shield(self.call(key, work))

        return await wait_for(turn(), seconds, what)

    def _over(self, key: str, lane: asyncio.Future[Any]) -> None:
        if self._last.get(key) is lane:
            del self._last[key]
        # Its caller may be gone: asyncio would log such a failure as unnoticed.
        if not lane.cancelled():
            lane.exception()

"""The allocate lane: ``allocate``, ``preview`` and ``prefer``, one call at a time.

Theory of operation. ``_turn`` is the lane's lock, and ``_current`` its call.

- A call has one deadline, which includes the wait for its turn.
- At the deadline the call fails and counts as hung (``_hung``): the next call takes the lane. While MOST_HUNG calls
  hang, further calls fail at once: they would hang, too.
- The call of a cancelled caller keeps the lane until it answers or its deadline passes. So a slow driver doesn't get
  concurrent calls because kubelets come and go.
- In both cases the result is dropped, and the caller is told of the call that goes on (``abandoned``): the driver works
  on the devices until it returns, and they have to be released then.
- A closed lane begins no call, also none that waits for its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dpgateway.drivers.answers import DriverEnded, fault
from dpgateway.errors import DriverTimeout
from dpgateway.kit.threads import Threads

T = TypeVar("T")

MOST_HUNG = 4

Abandoned = Callable[[asyncio.Future[Any]], None]
"""Called with a call that goes on without its caller; the future is done when the driver has returned."""


@dataclass(eq=False, slots=True)
class _LaneCall:
    """A call of the allocate lane."""

    method: str
    since: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.method}() for {time.monotonic() - self.since:.0f} s"


class AllocateLane:
    """The lane of one driver. Used from the event loop."""

    def __init__(self, name: str, threads: Threads) -> None:
        self._name, self._threads = name, threads
        self._turn = asyncio.Lock()
        self._queued = 0
        """The number of calls waiting for their turn. While it is 0, a free lock is taken without a timer."""
        self._current: _LaneCall | None = None
        self._hung: dict[_LaneCall, None] = {}
        self._closed = False

    def close(self) -> None:
        """Lets no further call begin."""
        self._closed = True

    async def call(
        self, method: str, function: Callable[[], T], seconds: float, end: float, abandoned: Abandoned | None = None
    ) -> T:
        """Runs ``function`` on a thread at its turn. ``end``: the deadline by time.monotonic(), ``seconds`` after the
        first attempt. ``abandoned`` is called before this raises, if the driver's call goes on.
        """
        if not self._queued and not self._turn.locked():
            await self._turn.acquire()
        else:
            self._queued += 1
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    await self._turn.acquire()
            except TimeoutError:
                raise DriverTimeout(f"{method}() wasn't called within {seconds:g} s, behind {self._current}") from None
            finally:
                self._queued -= 1

        # Each hung call has a thread, so their number is limited.
        if len(self._hung) >= MOST_HUNG:
            self._turn.release()
            calls = ", ".join(map(str, self._hung))
            raise DriverTimeout(f"{method}() isn't called, because {MOST_HUNG} calls hang: {calls}")

        def begin() -> T:
            if self._closed:  # since the call was queued, for its turn or for a thread
                raise DriverEnded
            return function()

        # The turn ends with the call, or at ``end``.
        self._current, loop = _LaneCall(method), asyncio.get_running_loop()
        future = self._threads.call(f"{self._name} {method}", begin, end - time.monotonic())
        over = loop.create_future()  # asyncio.wait would take as long as all else of an Allocate

        def wake(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        timer = loop.call_later(max(0.0, end - time.monotonic()), wake)
        future.add_done_callback(wake)
        try:
            await over
        except asyncio.CancelledError:  # perhaps just as the answer came
            self._abandon(future, max(0.0, end - time.monotonic()), abandoned)
            raise
        finally:
            timer.cancel()
        if not future.done():
            self._abandon(future, 0.0, abandoned)
            raise DriverTimeout(f"{method}() hasn't answered for {seconds:g} s")
        self._turn.release()
        try:
            return future.result()
        except Exception as error:
            raise fault(method, error) from error

    def _abandon(self, future: asyncio.Future[Any], left: float, abandoned: Abandoned | None) -> None:
        """The call has lost its caller. It keeps its turn for the seconds ``left``; after that it counts as hung."""
        call = self._current
        assert call is not None  # noqa: S101  the call that is given up

        def hang() -> None:
            self._hung[call] = None
            self._turn.release()

        def answered(_: object) -> None:
            if timer is not None:
                timer.cancel()
            # A hung call has lost its turn already.
            if call in self._hung:
                del self._hung[call]
            else:
                self._turn.release()
            future.exception()  # retrieved, or asyncio logs it as never retrieved

        timer = asyncio.get_running_loop().call_later(left, hang) if left else None
        if timer is None:
            hang()
        future.add_done_callback(answered)
        if abandoned is not None:
            abandoned(future)

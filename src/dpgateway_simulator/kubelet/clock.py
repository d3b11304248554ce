"""The simulated kubelet's clock. A caller may advance it, past the 10 s dial timeout or the 5 min grace period."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Protocol


class KubeletClock(Protocol):
    """A clock in seconds. Its zero is arbitrary."""

    def time(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def advance(self, seconds: float) -> None:
        """Advances the clock by `seconds` and wakes the sleepers that are due."""


@dataclass
class RealClock:
    """Monotonic time plus the sum of all advances.

    `advance` sets `_turned` and replaces it, which has every sleeper compute its rest anew.
    """

    _ahead: float = 0.0
    _turned: asyncio.Event = field(default_factory=asyncio.Event)

    def time(self) -> float:
        return time.monotonic() + self._ahead

    async def sleep(self, seconds: float) -> None:
        until = self.time() + seconds
        while (left := until - self.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._turned.wait()

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
        self._turned.set()
        self._turned = asyncio.Event()


@dataclass
class ManualClock:
    """A clock that stands still between calls of `advance`."""

    _now: float = 0.0
    _sleepers: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)

    def time(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        until = self._now + seconds
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((until, future))
        await future

    def advance(self, seconds: float) -> None:
        self._now += seconds
        due = [future for until, future in self._sleepers if until <= self._now]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self._now]
        for future in due:
            if not future.done():
                future.set_result(None)

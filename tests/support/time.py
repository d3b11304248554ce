"""The tests' only clock, and an event loop that lives by it: nobody waits, time passes at once.

The simulator's ``ManualClock`` is another thing: a part of the product, which its users turn.
"""

import asyncio
import contextlib
import functools
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from tests.support.waiting import turns

PATIENCE = 60.0
"""Real seconds. A loop without a timer can only wait for another thread, and no thread needs as long."""


class Clock:
    """Seconds that pass when somebody adds to ``now``. It has two functions of the module ``time``."""

    now = 1000.0
    began = 1_700_000_000.0
    """The date at 0 seconds."""

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.began + self.now


class _Selector(selectors.DefaultSelector):
    """Where a loop waits, this lets its clock pass."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = super().select(PATIENCE)
            assert ready, "the test waits for what nobody will do"
            return ready
        ready = super().select(0)
        if not ready:
            self._clock.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """When nothing can be done now, it is the time of the next timer."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(_Selector(self.clock))

    def time(self) -> float:
        return self.clock.now


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on a VirtualLoop."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*arguments, **fixtures))

    return run


async def advance(seconds: float) -> None:
    """Lets so many seconds pass: each timer that is due meanwhile fires at its time, and what it starts is done."""
    await turns()
    await asyncio.sleep(seconds)
    await turns()


def hurry(times: float) -> None:
    """From now on the running loop's clock passes so much faster than before: 0.02 after 50 is real time again. Wait by
    ``until``: between events the loop sleeps as long as ever.
    """
    loop = asyncio.get_running_loop()
    real, began = loop.time, loop.time()
    loop.time = lambda: began + times * (real() - began)  # type: ignore[method-assign]


@contextlib.contextmanager
def slowly(times: float = 10) -> Iterator[None]:
    """Meanwhile the running loop's clock passes so much slower: for what real threads do before a timer of the product
    may fire, however busy the machine is.
    """
    hurry(1 / times)
    try:
        yield
    finally:
        hurry(times)


def skip(seconds: float) -> None:
    """So many seconds have passed at once on the running loop's clock, however busy the machine is."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]

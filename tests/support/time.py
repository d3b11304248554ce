"""An event loop whose time passes when a test says so."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.waiting import turns


class ManualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0

    def time(self) -> float:
        return self._now

    async def advance(self, seconds: float) -> None:
        """Every timer that is due meanwhile fires at its time."""
        end = self._now + seconds
        await turns()
        while timers := [timer.when() for timer in self._scheduled if not timer.cancelled() and timer.when() <= end]:
            self._now = max(self._now, min(timers))
            await turns()
        self._now = end
        await turns()


def in_manual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on a ManualLoop."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=ManualLoop) as runner:
            runner.run(test(*arguments, **fixtures))

    return run


async def advance(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ManualLoop)
    await loop.advance(seconds)

"""Waiting for what happens on other threads, or in other processes."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

BUSY = 120.0
"""Seconds that a pod, or a gateway's process, has on a busy machine: to start takes a second or two on an idle one."""


async def until(
    condition: Callable[[], Any], seconds: float = 60.0, *, pause: float = 0.002, found: Callable[[], object] = str
) -> Any:
    """The first true value of ``condition``, which may be a coroutine function, and is asked again after each pause.

    The longer it takes, the less often it is asked, because many tests share the processors.

    For what nobody tells: prefer an event. ``found`` says what there was instead.
    """
    began = time.monotonic()
    while not (value := await _value(condition)):
        waited = time.monotonic() - began
        assert waited < seconds, f"it didn't come true within {seconds:g} s; {found()}"
        await asyncio.sleep(max(pause, min(0.05 * waited, 0.1)))
    return value


async def _value(condition: Callable[[], Any]) -> Any:
    value = condition()
    return await value if inspect.isawaitable(value) else value


async def turns(count: int = 20) -> None:
    """Lets the event loop do all that can be done now."""
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """A blocking function: each call waits until the gate is open, then returns ``answer``, or raises it."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []
        self.running = self.most_running = 0
        self._open, self._lock = threading.Event(), threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.calls.append(arguments)  # last: whoever sees the call may count
        answered = self._open.wait(60)
        with self._lock:
            self.running -= 1
        assert answered, "nobody opened the gate"
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def open(self) -> None:
        self._open.set()

    async def entered(self, count: int = 1) -> None:
        await until(lambda: len(self.calls) >= count)

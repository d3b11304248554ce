"""A daemon thread that runs blocking calls, one after another.

Daemon threads of our own, not ``asyncio.to_thread``: the interpreter waits for those of its executor when it exits, and
a driver, or a lock, may hang for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from dpgateway.errors import describe

T = TypeVar("T")

_Job = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class Worker:
    """One thread, started by its first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Runs ``function`` after the calls before it. Cancelling the future abandons the result, not the call."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            thread.start()
            self._thread = thread  # not before: a system out of threads may have one for the next call
        self._jobs.put((function, future, loop))
        return future

    def retire(self) -> None:
        """The thread ends after the calls that it has."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future, loop = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(_settle, future, result, error)
            del job, function, future, result, error


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
        return
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        error = _tamed(error)
    future.set_exception(error)


def _tamed(error: BaseException) -> Exception:
    """What would steer the event loop, or pass every ``except Exception`` up to the end of the process, as an error."""
    tamed = RuntimeError(describe(error))
    tamed.__cause__ = error
    return tamed

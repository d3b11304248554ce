"""A function for a thread to run, and who waits for its outcome: an event loop, or another thread.

Neither the job nor an error keeps what it doesn't need: a driver's object, and a traceback, can be large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dpgateway.errors import describe


class Job:
    """A function, and who waits for its outcome: an event loop, or, without one, a thread."""

    __slots__ = ("error", "function", "future", "loop", "name", "refused", "result")
    result: Any
    error: BaseException | None

    def __init__(
        self,
        name: str,
        function: Callable[[], Any],
        future: asyncio.Future[Any] | Future[Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.name, self.future, self.loop = name, future, loop
        self.function: Callable[[], Any] | None = function
        self.refused = 0

    def run(self) -> None:
        """Runs the function, unless nobody wants the outcome any more. Called once, on a thread."""
        function, self.function = self.function, None
        self.result, self.error = (None, None) if self.future.cancelled() else _outcome(function)

    def fail(self, error: Exception, cause: Exception) -> None:
        """In place of running: there is no thread."""
        self.result, self.error = None, error
        error.__cause__ = cause
        self.settle()

    def deliver(self) -> None:
        """Called on the thread that ran the function."""
        if self.loop is None:
            self.settle()
            return
        try:
            self.loop.call_soon_threadsafe(self.settle)
        except RuntimeError:  # the loop is closed: the process ends
            return

    def settle(self) -> None:
        """Gives the outcome to the future and keeps none of it: a thread or a timer may hold this job longer."""
        future, result, error = self.future, self.result, self.error
        del self.future, self.result, self.error
        if future.done():  # cancelled
            return
        if error is None:
            future.set_result(result)
            return
        future.set_exception(error if _harmless(error) else _tamed(error))


def _outcome(function: Callable[[], Any] | None) -> tuple[Any, BaseException | None]:
    """A function of its own, because the error that it returns holds its frame."""
    assert function is not None  # noqa: S101  a job runs once
    try:
        return function(), None
    except BaseException as error:
        return None, error


def _harmless(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


def _tamed(error: BaseException) -> Exception:
    """An ordinary error in place of one that would steer the event loop, or pass every ``except Exception``."""
    tamed = RuntimeError(describe(error))
    tamed.__cause__ = error
    return tamed

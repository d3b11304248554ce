"""The background tasks of one life of a kubelet: named, and all ended with it.

asyncio.TaskGroup would want to be entered and left by one and the same task; a kubelet is started and stopped by any.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from dpgateway_simulator.kubelet.errors import Crashed

T = TypeVar("T")


class Tasks:
    """Tasks that live no longer than their owner. An error in one is kept and raised by `end`; a crash is none."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._errors: list[BaseException] = []

    def spawn(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, Crashed):
            self._errors.append(error)

    def cancel(self) -> None:
        """Cancels all but the task that calls."""
        for task in self._running - {asyncio.current_task()}:
            task.cancel()

    async def end(self) -> None:
        """Cancels all tasks but the calling one and waits for them; raises the first error that any of them had."""
        self.cancel()
        others = self._running - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)
        if self._errors:
            raise self._errors[0]

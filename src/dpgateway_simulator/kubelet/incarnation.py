"""One incarnation of a kubelet, from its start to its end: what all its parts share, and the tasks that end with it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dpgateway_simulator.kubelet import store
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.errors import Crashed
from dpgateway_simulator.kubelet.ledger import DeviceLedger
from dpgateway_simulator.kubelet.node import SimulatedNode

T = TypeVar("T")
_NIL = "invalid memory address or nil pointer dereference"


class Incarnation:
    """`found_running` are the (pod, container) that the container runtime found running at the start.

    `crashed` is the reason of a panic, and empty without one.
    """

    def __init__(
        self,
        node: SimulatedNode,
        behaviour: Behaviour,
        *,
        sources_ready: bool = True,
        found_running: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self.node, self.behaviour = node, behaviour
        self.sources_ready, self.found_running = sources_ready, found_running
        self.ledger = DeviceLedger(hides_unhealthy=behaviour.hides_unhealthy)
        self.tasks = Tasks()
        self.ended, self.crashed = False, ""
        self._at_end: list[Callable[[], None]] = []

    def now(self) -> float:
        return self.node.clock.time()

    async def sleep(self, seconds: float) -> None:
        await self.node.clock.sleep(seconds)

    def emit(self, kind: str, **fields: object) -> None:
        self.node.journal.emit(kind, **fields)

    def save(self) -> None:
        """Writes the checkpoint; a kubelet that has ended writes nothing."""
        if not self.ended:
            store.save(self.node.directory, self.behaviour, self.ledger)

    def at_end(self, stop: Callable[[], None]) -> None:
        """Has `stop` called when the incarnation ends, in the order in which it was asked for."""
        self._at_end.append(stop)

    def end(self, kind: str, **about: str) -> None:
        """Stops everything of this process at once; `tasks.end` waits for the rest."""
        if self.ended:
            return
        self.ended = True
        self.tasks.cancel()
        for stop in self._at_end:
            stop()
        self.emit(kind, version=self.behaviour.version, **about)

    def crash(self, reason: str) -> Crashed:
        """The kubelet panics; the error to raise."""
        self.crashed = reason
        self.end("crashed", reason=reason)
        return Crashed(reason)

    def nil_pointer(self, function: str) -> Crashed:
        """A panic in a function of the kubelet, in the words of the Go runtime."""
        return self.crash(f"panic: runtime error: {_NIL} in {function}")


class Tasks:
    """Tasks that end with their owner. `end` raises the first error that one had; a crash is no error.

    asyncio.TaskGroup must be entered and left by one and the same task; a kubelet is started and stopped by any.
    """

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

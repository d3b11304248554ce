"""One incarnation of a kubelet: the state that its parts share, and the tasks that end with it.

An incarnation stands for a process, so its end is synchronous: `end` sets `ended`, cancels all tasks and runs the
`at_end` callbacks without an await, and nothing writes a checkpoint afterwards. `tasks.end` then waits for the
cancelled tasks; Restartable calls it before the next incarnation starts on the same directory.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dpgateway_simulator.kubelet import store
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError, RefusedError
from dpgateway_simulator.kubelet.ledger import DeviceLedger
from dpgateway_simulator.kubelet.node import SimulatedNode

T = TypeVar("T")
_NIL = "invalid memory address or nil pointer dereference"


class Incarnation:
    """The state of one kubelet process.

    `found_running` contains the (pod, container) pairs that the container runtime reports as running at the start.
    `crashed` contains the text of a panic, and is empty without one.
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
        self.now, self.sleep, self.emit = node.clock.time, node.clock.sleep, node.journal.emit
        self.sources_ready, self.found_running = sources_ready, found_running
        self.ledger = DeviceLedger(hides_unhealthy=behaviour.hides_unhealthy)
        self.tasks = Tasks()
        self.ended, self.crashed = False, ""
        self._at_end: list[Callable[[], None]] = []

    def save(self) -> None:
        """Writes the checkpoint, unless the incarnation has ended."""
        if not self.ended:
            store.save(self.node.directory, self.behaviour, self.ledger)

    def at_end(self, stop: Callable[[], None]) -> None:
        """Registers a callback for the end of the incarnation; callbacks run in the order of registration."""
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
        """Ends the incarnation with a panic; returns the error to raise."""
        self.crashed = reason
        self.end("crashed", reason=reason)
        return Crashed(reason)

    def nil_pointer(self, function: str) -> Crashed:
        """Ends the incarnation with a nil-pointer panic in `function`, worded as by the Go runtime."""
        return self.crash(f"panic: runtime error: {_NIL} in {function}")


@dataclass
class Tasks:
    """Tasks that end with their owner. `end` raises the first error of a task. A simulated crash isn't an error, nor is
    a call that found the kubelet ended; a refused registration is its caller's.

    asyncio.TaskGroup must be entered and left by the same task; a kubelet may be started by one and stopped by another.
    """

    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _errors: list[BaseException] = field(default_factory=list)

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
        if error is not None and not isinstance(error, Crashed | NotRunningError | RefusedError):
            self._errors.append(error)

    def cancel(self) -> None:
        """Cancels all tasks but the calling one, which may be the task that crashed the kubelet."""
        for task in self._running - {asyncio.current_task()}:
            task.cancel()

    async def end(self) -> None:
        """Cancels all tasks but the calling one and waits for them; raises the first error of any task."""
        self.cancel()
        others = self._running - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)
        if self._errors:
            raise self._errors[0]

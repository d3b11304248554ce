"""The prepare lane: ``prepare`` and ``release``, at the same time for different devices, one at a time for each device.

When a deadline passes, whoever waits gets an error that says how far the call is. The call goes on, because hardware
that is being programmed can't be told to stop. A later prepare of the same devices joins the call. If the call has
succeeded by then, the later prepare returns at once, unless one of the devices was released, changed, or given away
together with others since.

A call that hasn't begun is dropped once nobody waits for it, because the kubelet tries again by itself (pkg/kubelet,
every release since 1.10). A release that hasn't begun leaves out devices that were given away again, which may be
another container's by then. One that has begun can't, so an Allocate waits for it (:meth:`PrepareLane.released`). Who
holds a device is known elsewhere: a release gets a function that says what is still free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from dpgateway.drivers.answers import fault, trace
from dpgateway.drivers.calls_after_close import Unended, UnendedCalls
from dpgateway.drivers.unclaimed import Key, Success, Unseen, key_of
from dpgateway.errors import DriverError, DriverTimeout
from dpgateway.kit.threads import Threads
from dpgateway.model import Device

MOST_AT_ONCE = 16

Begin = Callable[[], Callable[[], object]]
"""Called when the call's turn has come; returns what to run."""
Free = Callable[[Sequence[Device]], Sequence[Device]]
"""Returns those of the devices that no container has or may be getting."""


class Ended(DriverError):
    """The driver ended before its call did."""


@dataclass
class _Call:
    """One call of prepare or release that waits for its turn, is under way, or has ended."""

    method: str
    devices: tuple[Device, ...]
    since: float
    phase: str = "waiting for its devices"
    begun: bool = False
    waiters: int = 0
    task: asyncio.Task[Exception | None] | None = None
    overdue: bool = False
    """Somebody waited for it in vain."""
    success: Success | None = None
    outdated: bool = False
    """One of its devices was given to another container meanwhile, so its success doesn't answer a later prepare."""

    def enter(self, phase: str, now: float) -> None:
        self.phase, self.since = phase, now


class PrepareLane:
    """Used from the event loop; its tasks end with the group."""

    def __init__(
        self,
        name: str,
        threads: Threads,
        group: asyncio.TaskGroup,
        log: logging.LoggerAdapter[logging.Logger],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` tells seconds."""
        self.unended = UnendedCalls()
        """The calls that go on when this lane's tasks are cancelled; who makes the lane may want them elsewhere."""
        self._clock = clock
        self._name, self._threads, self._group, self._log = name, threads, group, log
        self._closed = False
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: dict[Key, tuple[_Call, asyncio.Future[None]]] = {}
        self._releasing: dict[str, tuple[float, asyncio.Future[None]]] = {}
        """By device: since when a release of it has been under way, and what is done when it has ended."""
        self._tasks: set[asyncio.Task[Exception | None]] = set()
        self._unseen = Unseen(clock)

    async def prepare(self, devices: Sequence[Device], function: Callable[[], object], deadline: float) -> None:
        """Returns when the devices are ready; raises DriverTimeout after ``deadline`` seconds, and goes on."""
        devices = tuple(devices)
        key = key_of(devices)
        if self._unseen.answers(devices):
            return
        call, future = self._running.get(key) or self._start("prepare", key, devices, lambda: function)
        call.waiters += 1
        try:
            done, _ = await asyncio.wait({future}, timeout=deadline)
        finally:
            call.waiters -= 1
            self._drop_unless_wanted(key, call)
        if not done:
            call.overdue = True
            joined = ", and the next attempt joins it" if not call.outdated else ""
            rest = f"it goes on{joined}" if call.begun else "the next attempt waits again"
            raise DriverTimeout(
                f"prepare() of {_names(devices)} hasn't finished within {deadline:.3g} s ({call.phase} for "
                f"{self._clock() - call.since:.0f} s); {rest}"
            )
        try:
            future.result()
        except Exception as error:
            raise fault("prepare", error) from error
        if call.success is not None:
            self._unseen.saw(call.success)

    def release(
        self,
        devices: Sequence[Device],
        function: Callable[[Sequence[Device]], object],
        free: Free,
    ) -> asyncio.Future[None]:
        """Once no other call uses the devices, runs ``function`` with those that are still ``free``."""
        devices = tuple(devices)

        def begin() -> Callable[[], object]:
            released = tuple(free(devices))
            self._unseen.released(released)
            self._releasing |= {device.id: (self._clock(), future) for device in released}
            future.add_done_callback(self._end_release)
            return lambda: function(released) if released else None

        future = self._start("release", key_of(devices), devices, begin)[1]
        return future

    def _end_release(self, future: asyncio.Future[None]) -> None:
        """The next one of the same devices may be under way already."""
        self._releasing = {id_: one for id_, one in self._releasing.items() if one[1] is not future}

    async def released(self, devices: Sequence[Device], seconds: float) -> None:
        """Returns when no release of the devices is under way; raises DriverTimeout after ``seconds``. The caller holds
        the devices already, so no other release of them begins.
        """
        busy = {device.id: self._releasing[device.id] for device in devices if device.id in self._releasing}
        if not busy:
            return
        _, left = await asyncio.wait({future for _, future in busy.values()}, timeout=seconds)
        for id_, (since, future) in busy.items():
            if future in left:
                raise DriverTimeout(f"release() of {id_} has been under way for {self._clock() - since:.0f} s")

    def given(self, devices: Sequence[Device]) -> None:
        """A container gets the devices: what was prepared of them together with others doesn't count any more."""
        self._unseen.given(devices)
        key = key_of(devices)
        for other in [other for other in self._running if other != key and not key.isdisjoint(other)]:
            self._running.pop(other)[0].outdated = True

    def listed(self, devices: Collection[Device]) -> None:
        """A new list: a device that changed may have lost what was prepared."""
        self._unseen.listed(devices)

    def _drop_unless_wanted(self, key: Key, call: _Call) -> None:
        if call.begun or call.waiters or call.task is None:
            return
        call.task.cancel()
        self._leave(key, call)

    def _leave(self, key: Key, call: _Call) -> None:
        """It isn't under way any more."""
        if not call.outdated:
            del self._running[key]

    def _start(
        self, method: str, key: Key, devices: tuple[Device, ...], begin: Begin
    ) -> tuple[_Call, asyncio.Future[None]]:
        if self._closed:
            raise Ended("the driver ended")
        call = _Call(method, devices, self._clock())
        task = self._group.create_task(self._run(call, key, begin), name=f"{self._name} {method} {_names(devices)}")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: _copy(done, future))
        call.task = task
        if method == "prepare":
            self._running[key] = (call, future)
        return call, future

    async def _run(self, call: _Call, key: Key, begin: Begin) -> Exception | None:
        """Returns what the driver raised, because one call's error must not end the group."""
        error: Exception | None = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                for id_ in sorted(key):  # in one order, or two calls could wait for one another
                    await stack.enter_async_context(self._turns.setdefault(id_, asyncio.Lock()))
                call.enter(f"waiting for one of {MOST_AT_ONCE} calls to end", self._clock())
                async with self._slots:
                    call.enter("running", self._clock())
                    call.begun = True
                    await self._on_thread(call, begin())
        except Exception as raised:
            error = raised
        if call.method == "prepare":
            self._finish(key, call, error)
        return error

    async def _on_thread(self, call: _Call, function: Callable[[], object]) -> None:
        """A call that has begun can't be broken off: it counts until it returns, also if nobody waits for it here."""

        def run() -> None:
            if self._closed:  # before a thread was free
                raise Ended("the driver ended")
            function()

        future = self._threads.call(f"{self._name} {call.method}", run)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                self.unended.add(Unended(self._name, call.method, call.devices), future)
            raise

    def _finish(self, key: Key, call: _Call, error: Exception | None) -> None:
        self._leave(key, call)
        now = self._clock()
        ran = now - call.since
        if error is None:
            call.enter("done", now)
            if not call.outdated:
                call.success = self._unseen.add(call.devices)
        if call.overdue:
            reason = None if error is None else str(fault("prepare", error))
            outcome = "succeeded" if error is None else f"failed: {reason}"
            names = [device.id for device in call.devices]
            fields = {"devices": names, "seconds": ran, "reason": reason, "exception": trace(error)}
            self._log.log(
                logging.INFO if error is None else logging.ERROR,
                "after its deadline, prepare() of %s %s, in %.1f s",
                _names(call.devices),
                outcome,
                ran,
                extra={"method": "prepare", **fields},
            )

    @property
    def running(self) -> int:
        """How many preparations are under way, or wait for their turn."""
        return len(self._running)

    @property
    def idle(self) -> bool:
        """Whether no call is under way, or waits for its turn."""
        return not self._tasks

    def close(self) -> None:
        """No call begins any more."""
        self._closed = True


def _copy(task: asyncio.Task[Exception | None], future: asyncio.Future[None]) -> None:
    if future.done():
        return
    error = Ended("the driver ended") if task.cancelled() else task.exception() or task.result()
    if error is not None:
        future.set_exception(error)
        future.exception()  # nobody may be waiting
    else:
        future.set_result(None)


def _names(devices: Sequence[Device]) -> str:
    return ", ".join(device.id for device in devices)

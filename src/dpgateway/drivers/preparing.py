"""The prepare lane: ``prepare`` and ``release``, concurrent for different devices, serialized for each device.

Theory of operation. A call is a :class:`_Work` with one task: it waits for a lock per device (``_turns``), then for one
of MOST_AT_ONCE slots, then runs on a thread (``begun``). Several callers may wait for one prepare (``_preparing``).

- *A call that has begun can't be cancelled*, because hardware can't be stopped halfway through programming. At the
  deadline the caller gets an error with the call's phase, and the call goes on, even after its driver has ended; a
  later prepare of the same devices joins it.
- *A prepare that hasn't begun* is dropped with its last waiter, because the kubelet retries (pkg/kubelet, every release
  since 1.10).
- *A late success* is unclaimed: it answers the next prepare of the same devices, once. It is forgotten when one of the
  devices is released, changes, or is allocated together with others. A prepare in progress whose device is allocated
  together with others is outdated: no later prepare joins it, and its success isn't kept. So is one with other options,
  because a claim may choose what the devices are prepared for, and one whose devices are other hardware by now.
- *A release that hasn't begun* leaves out devices that were allocated again, perhaps to another container. The lane
  doesn't know the holders, so a release brings a function that returns the devices still free. A release that has begun
  can't leave out any, so an Allocate waits for it (:meth:`PrepareLane.released`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from dpgateway.drivers.answers import DriverEnded, fault, trace
from dpgateway.errors import DriverTimeout
from dpgateway.kit.threads import Threads
from dpgateway.model import Device, Health, hardware

MOST_AT_ONCE = 16
KEPT = 300.0
"""Seconds for which a late success answers the next prepare: the kubelet's longest back-off (5 min)."""

Ids = frozenset[str]
"""Device ids."""
Begin = Callable[[], Callable[[], object]]
"""Called at the call's turn; returns the function to run."""
Free = Callable[[Sequence[Device]], Sequence[Device]]
"""Returns the devices that no container has or is being given."""


@dataclass(frozen=True, eq=False)
class CallAfterClose:
    """A call that goes on after its driver ended; its devices are in use until it returns."""

    resource: str
    method: str
    devices: Sequence[Device]
    ended: asyncio.Future[Any]
    """Done when the call has returned."""


@dataclass(frozen=True, slots=True, eq=False)
class _Success:
    """A finished prepare: its devices, and when it finished."""

    devices: tuple[Device, ...]
    at: float
    options: object = None


@dataclass(eq=False)
class _Work:
    """One call of prepare or release: waiting for its turn, running, or ended."""

    method: str
    devices: tuple[Device, ...]
    ids: Ids
    since: float
    """When ``phase`` began."""
    options: object = None
    """What a claim chose for its devices; None for the resource's own options."""
    task: asyncio.Task[Exception | None] = field(init=False)
    """Returns the driver's exception or None; cancelled if the driver ended first."""
    call: asyncio.Future[Any] | None = None
    """The call of the driver's method, once it has begun."""
    phase: str = "waiting for its devices"
    begun: bool = False
    waiters: int = 0
    overdue: bool = False
    """Whether a waiter's deadline passed, so that its end is logged."""
    outdated: bool = False
    """Whether one of its devices was since allocated together with others."""
    success: _Success | None = None


class PrepareLane:
    """The lane of one driver. Used from the event loop; its tasks end with the group."""

    def __init__(
        self,
        name: str,
        threads: Threads,
        group: asyncio.TaskGroup,
        log: logging.LoggerAdapter[logging.Logger],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` returns seconds."""
        self._name, self._threads, self._group, self._log, self._clock = name, threads, group, log, clock
        self._closed = False
        self._works: set[_Work] = set()
        """The calls waiting or running."""
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """`_turns` contains the lock of each device with calls, keyed by device id; unused locks vanish."""
        self._preparing: dict[Ids, _Work] = {}
        """`_preparing` contains the prepare that the next one of the same devices joins, keyed by device ids."""
        self.releasing: dict[str, _Work] = {}
        """`releasing` contains the release that has begun, keyed by device id."""
        self._unclaimed: dict[Ids, _Success] = {}
        """`_unclaimed` contains late successes, keyed by device ids."""

    async def prepare(
        self, devices: Sequence[Device], function: Callable[[], object], deadline: float, options: object = None
    ) -> None:
        """Returns when the devices are ready. Raises DriverTimeout after ``deadline`` seconds; the call goes on."""
        # The kubelet retries after a timeout, so an earlier call may have prepared the devices meanwhile.
        devices, ids = tuple(devices), _ids(devices)
        last = self._unclaimed.pop(ids, None)
        same = last is not None and last.options == options and _states(last.devices) == _states(devices)
        if last is not None and same and self._clock() - last.at < KEPT:
            return
        other = self._preparing.get(ids)
        if other is not None and (other.options, _hardware(other.devices)) != (options, _hardware(devices)):
            self._preparing.pop(ids).outdated = True

        # Several callers may wait: the last one to give up drops a call that hasn't begun.
        work = self._preparing.get(ids) or self._start("prepare", devices, lambda: function, options)
        work.waiters += 1
        try:
            await asyncio.wait({work.task}, timeout=deadline)
        finally:
            work.waiters -= 1
            if not work.begun and not work.waiters:
                work.task.cancel()
                if self._preparing.get(ids) is work:
                    del self._preparing[ids]

        # The message tells people what the call waits for, and what the next attempt does.
        if not work.task.done():
            work.overdue = True
            joined = ", and the next attempt joins it" if not work.outdated else ""
            rest = f"it goes on{joined}" if work.begun else "the next attempt waits again"
            raise DriverTimeout(
                f"prepare() of {_names(devices)} hasn't finished within {deadline:.3g} s ({work.phase} for "
                f"{self._clock() - work.since:.0f} s); {rest}"
            )
        if (error := failure(work.task)) is not None:
            raise fault("prepare", error) from error
        if self._unclaimed.get(ids) is work.success:  # claimed by this caller
            self._unclaimed.pop(ids, None)

    def release(
        self, devices: Sequence[Device], function: Callable[[Sequence[Device]], object], free: Free
    ) -> asyncio.Task[Exception | None]:
        """Once no other call uses the devices, runs ``function`` with the ones still ``free``. The task returns the
        exception that it raised: see :func:`failure`.
        """

        def begin() -> Callable[[], object]:
            # What another resource of the pool got since may be programmed for that: no success answers for it.
            self._forget(lambda prepared: not work.ids.isdisjoint(prepared))
            released = tuple(free(work.devices))
            # in the same step as free(): an Allocate sees one or the other
            self.releasing |= dict.fromkeys(_ids(released), work)
            work.task.add_done_callback(end)
            return lambda: function(released) if released else None

        def end(_: object) -> None:  # the next release of the same devices may be under way already
            self.releasing = {id_: one for id_, one in self.releasing.items() if one is not work}

        work = self._start("release", tuple(devices), begin)
        return work.task

    async def released(self, devices: Sequence[Device], seconds: float) -> None:
        """Returns when no release of the devices is running. Raises DriverTimeout after ``seconds``. The caller holds
        the devices already, so no further release of them begins.
        """
        busy = {device.id: self.releasing[device.id] for device in devices if device.id in self.releasing}
        if busy:
            await asyncio.wait({work.task for work in busy.values()}, timeout=seconds)
        for id_, work in busy.items():
            if not work.task.done():
                raise DriverTimeout(f"release() of {id_} has been under way for {self._clock() - work.since:.0f} s")

    def given(self, devices: Sequence[Device]) -> None:
        """The devices are being allocated: a prepare of some of them together with other devices is void."""
        ids = _ids(devices)
        self._forget(lambda prepared: prepared != ids and not ids.isdisjoint(prepared))
        for other in [other for other in self._preparing if other != ids and not ids.isdisjoint(other)]:
            self._preparing.pop(other).outdated = True

    def listed(self, devices: Sequence[Device]) -> None:
        """Takes a new list: a device that changed may have lost its preparation."""
        if self._unclaimed:
            now = _states(devices)
            self._forget(lambda prepared: not _states(self._unclaimed[prepared].devices).items() <= now.items())

    def _forget(self, lost: Callable[[Ids], bool]) -> None:
        self._unclaimed = {ids: success for ids, success in self._unclaimed.items() if not lost(ids)}

    @property
    def running(self) -> int:
        """The number of preparations running or waiting for their turn."""
        return len(self._preparing)

    @property
    def idle(self) -> bool:
        """Whether no call is running or waiting for its turn."""
        return not self._works

    @property
    def busy(self) -> Ids:
        """The devices of the calls running or waiting for their turn."""
        return frozenset(id_ for work in self._works for id_ in work.ids)

    def close(self) -> list[CallAfterClose]:
        """Lets no further call begin. Returns the calls that go on when the lane's tasks are cancelled."""
        self._closed = True
        return [
            CallAfterClose(self._name, work.method, work.devices, work.call)
            for work in self._works
            if work.call is not None and not work.call.done()
        ]

    # a call

    def _start(self, method: str, devices: tuple[Device, ...], begin: Begin, options: object = None) -> _Work:
        if self._closed:
            raise DriverEnded
        work = _Work(method, devices, _ids(devices), self._clock(), options)
        work.task = self._group.create_task(self._run(work, begin), name=f"{self._name} {method} {_names(devices)}")
        self._works.add(work)
        work.task.add_done_callback(lambda _: self._works.discard(work))
        if method == "prepare":
            self._preparing[work.ids] = work
        return work

    async def _run(self, work: _Work, begin: Begin) -> Exception | None:
        """Returns the driver's exception, because raising it would end the task group."""

        def call(function: Callable[[], object]) -> None:
            if self._closed:  # since the call was queued for a thread
                raise DriverEnded
            function()

        error: Exception | None = None
        try:
            async with contextlib.AsyncExitStack() as turns:
                for id_ in sorted(work.ids):  # a global order avoids deadlock
                    await turns.enter_async_context(self._turns.setdefault(id_, asyncio.Lock()))
                work.phase, work.since = f"waiting for one of {MOST_AT_ONCE} calls to end", self._clock()
                async with self._slots:
                    work.phase, work.since, work.begun = "running", self._clock(), True
                    work.call = self._threads.call(f"{self._name} {work.method}", partial(call, begin()))
                    await asyncio.shield(work.call)  # the lane's end doesn't cancel it: see close()
        except Exception as raised:
            error = raised
        if work.method != "prepare":
            return error

        # Waiters run after this and claim the success; an unclaimed one stays for the next prepare.
        if self._preparing.get(work.ids) is work:
            del self._preparing[work.ids]
        now = self._clock()
        if error is None and not work.outdated:
            self._unclaimed[work.ids] = work.success = _Success(work.devices, now, work.options)

        # A caller that timed out was told that the call goes on; the log has its end.
        if work.overdue:
            ran, reason = now - work.since, None if error is None else str(fault("prepare", error))
            level, outcome = (logging.INFO, "succeeded") if error is None else (logging.ERROR, f"failed: {reason}")
            names = [device.id for device in work.devices]
            fields = {"devices": names, "seconds": ran, "reason": reason, "exception": trace(error)}
            text = "after its deadline, prepare() of %s %s, in %.1f s"
            self._log.log(level, text, _names(work.devices), outcome, ran, extra={"method": "prepare", **fields})
        return error


def failure(task: asyncio.Task[Exception | None]) -> Exception | None:
    """The exception of a call of the lane that has ended; None if it succeeded."""
    return DriverEnded() if task.cancelled() else task.result()


def _ids(devices: Iterable[Device]) -> Ids:
    return frozenset(device.id for device in devices)


def _states(devices: Iterable[Device]) -> Mapping[str, tuple[Health, tuple[int, ...], frozenset[str]]]:
    """The values by which devices are compared; further fields of a driver's own class may not be comparable."""
    return {device.id: (device.health, device.numa_nodes, hardware(device)) for device in devices}


def _hardware(devices: Iterable[Device]) -> Mapping[str, frozenset[str]]:
    return {device.id: hardware(device) for device in devices}


def _names(devices: Sequence[Device]) -> str:
    return ", ".join(device.id for device in devices)

"""One resource's driver at run time: loaded, made, polled for its list, closed; after a failure made again.

Theory of operation:

- One task (:meth:`RunningDriver.run`) goes through load, make, list, close. Each step runs on a thread and may hang; at
  the ``list`` deadline the task reports a failure and goes on waiting: a late driver is better than none.
- ``state`` is the driver's output, one observable value. ``lanes`` is set from the moment the driver is made until just
  before it is closed, so a closing driver gets no calls. Watchers of ``state`` are woken by changes of both.
- A list replaces a failure. A failure keeps the list: the last devices are Unhealthy, not gone.
- A driver whose constructor returns after its resource was stopped is closed: it has no other owner.

A running driver doesn't know its watchers and callers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.drivers.contract import Context, Driver, DriverClass
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.listing import Fitting, ListLane, Unfit, given
from dpgateway.drivers.preparing import CallAfterClose
from dpgateway.errors import DriverError, GatewayError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import of_driver
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import retry
from dpgateway.kit.threads import Threads
from dpgateway.model import Device

CLOSING = 5.0
"""Seconds that a driver has to close while the gateway goes on."""
CLOSING_LAST = 0.5
"""Seconds that a driver has to close at the end of the gateway."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """The output of a running driver."""

    devices: tuple[Device, ...] | None = None
    """The last list; None before the first one."""
    failure: str = ""
    """The present failure; empty while the driver answers, and until its first list is due."""
    listed_at: float | None = None
    """When ``devices`` was listed, in seconds of the monotonic clock."""
    error: str = ""
    """The last failure, present or past."""
    erred: float | None = None
    """When ``error`` began, in seconds of the monotonic clock."""
    overdue: bool = False
    """Whether the deadline of the first list has passed, so that waiting for it should end."""


class CallsAfterClose:
    """The calls that outlive their drivers, and perhaps their configuration; one for the process, used from the event
    loop.
    """

    def __init__(self) -> None:
        self.now: Observable[tuple[CallAfterClose, ...]] = Observable(())
        """The calls still running."""

    def add(self, call: CallAfterClose) -> None:
        def ended(done: asyncio.Future[Any]) -> None:
            if not done.cancelled():
                done.exception()  # retrieved, or asyncio logs it as never retrieved
            self.now.set(tuple(one for one in self.now.value if one is not call))

        self.now.set((*self.now.value, call))
        call.ended.add_done_callback(ended)


class RunningDriver:
    """The driver of one resource. Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        node_name: str,
        threads: Threads,
        log: logging.LoggerAdapter[logging.Logger],
        after_close: CallsAfterClose | None = None,
    ) -> None:
        """``config`` changes in place. ``after_close`` gets the calls that go on after the driver ended."""
        self.state = Observable(DriverState())
        """Set at each list and each failure; its watchers are woken when ``lanes`` changes, too."""
        self.lanes: Lanes | None = None
        """The driver's lanes; None while there is no driver."""
        self._config, self._node_name, self._threads, self._log = config, node_name, threads, log
        self._after_close = after_close or CallsAfterClose()
        self._held: Callable[[], Collection[str]] = frozenset
        self._fitting = Fitting(None, config)
        self._driver: Driver | None = None
        self._lane: ListLane | None = None
        self._complaint = Complaint(log, "the resource failed: %s", level=logging.ERROR)
        self._hurried = Observable(value=False)
        self._known = config.value
        config.subscribe(self._configured)

    def inform(self, held: Callable[[], Collection[str]], unfit: Unfit) -> None:
        """Sets the front's part, before the driver runs. ``held``: see ``Context``; ``unfit``: judges its devices."""
        self._held = held
        self._fitting = Fitting(unfit, self._config)

    @property
    def healthy(self) -> bool:
        """Whether the last list has a healthy device."""
        return any(device.health.ok for device in self.state.value.devices or ())

    def hurry(self) -> None:
        """The gateway ends: shortens the time to close, even of a close under way."""
        self._hurried.set(value=True)

    def _configured(self) -> None:
        """Asks for a list now if the change concerns ``refresh``, or the judging of devices: the mounts, which the host
        may lack, and for a driver with ``preview`` all additions.
        """
        before, now = self._known, self._config.value
        self._known = now
        previews = self.lanes is not None and "preview" in self.lanes.abilities
        judged = before.mounts != now.mounts or (previews and given(before) != given(now))
        if self._lane is not None and (judged or before.refresh != now.refresh):
            self._lane.ask()

    async def run(self) -> None:
        """Makes the driver and asks it, until it is cancelled; then closes it."""
        seconds = self._config.value.timeouts.list.total_seconds()
        timer = asyncio.get_running_loop().call_later(seconds, self._first_list_is_due, seconds)
        try:
            await retry(self._run_once, self._failed)
        finally:
            timer.cancel()
            await self._close()

    async def _run_once(self) -> None:
        # The lane exists before the driver: a constructor may announce a change.
        self._lane = lane = ListLane(self._config, self._threads, self._log)
        try:
            self._driver = driver = await self._make(lane.changed)
            async with asyncio.TaskGroup() as group:
                self.lanes = lanes = Lanes(driver, self._config, self._threads, group, self._log)
                self.state.notify()
                try:
                    asking = lane.run(driver, self._fitting, lanes.stats, self._hear)
                    await group.create_task(asking, name=f"{self._config.value.name} list")
                finally:  # a closing driver gets no calls
                    for call in lanes.close():
                        self._after_close.add(call)
                    self.lanes = self._lane = None
                    self.state.notify()
        except Exception:
            await self._close()
            raise

    async def _make(self, changed: Callable[[], None]) -> Driver:
        # The class, if it wasn't loaded in time for the configuration; loading includes the check of the options.
        config = self._config.value
        if (load := config.load) is not None:
            loading = self._threads.call(f"{config.name} load", load)
            await self._awaited(loading, "loaded")
            if self._config.value.load is load:  # else a reload has brought the loaded class
                self._config.set(self._config.value.loaded(loading.result()))
            config = self._config.value
        make: DriverClass | None = config.driver_class
        if config.failure or make is None:
            raise DriverError(config.failure or "it isn't installed")

        # The object, on a thread, because a constructor may block.
        log = of_driver(config.driver, config.name)
        context = Context(config.name, self._node_name, log, changed, self._held)
        making = self._threads.call(
            f"{config.name} make", partial(answers.ask, "__init__", partial(make, config.options, context))
        )
        try:
            await self._awaited(making, "made")
        except asyncio.CancelledError:
            making.add_done_callback(self._made_in_vain)
            raise
        return making.result()

    async def _awaited(self, future: asyncio.Future[Any], done: str) -> None:
        """Waits for the future, without cancelling it; reports a failure at the deadline, and goes on waiting."""
        seconds = self._config.value.timeouts.list.total_seconds()
        if (await asyncio.wait({future}, timeout=seconds))[0]:
            return
        reason = f"the driver {self._config.value.driver} hasn't been {done} within {seconds:g} s"
        self._log.error("the resource failed: %s", reason, extra={"reason": reason})
        self._fail(reason)
        await asyncio.wait({future})
        if future.exception() is None:
            self._log.info("the driver has been %s, after its deadline", done)

    def _made_in_vain(self, making: asyncio.Future[Driver]) -> None:
        if making.exception() is None and callable(close := getattr(making.result(), "close", None)):
            self._threads.call(f"{self._config.value.name} close", close)

    # the driver's output

    def _hear(self, answer: tuple[Device, ...] | str) -> None:
        if isinstance(answer, str):
            self._fail(answer)
            return
        # A changed device may have lost its preparation.
        if self.lanes is not None and "prepare" in self.lanes.abilities:
            self.lanes.preparing.listed(answer)
        self.state.set(replace(self.state.value, devices=answer, failure="", listed_at=time.monotonic()))

    def _first_list_is_due(self, seconds: float) -> None:
        state = self.state.value
        # A failure has told the reason already, so only the wait ends.
        if state.devices is None and not state.failure:
            self._fail(f"the driver hasn't listed its devices within {seconds:g} s", overdue=True)
        else:
            self.state.set(replace(state, overdue=True))

    def _failed(self, raised: Exception) -> None:
        error: BaseException = raised
        while isinstance(error, ExceptionGroup):  # of the task group
            error = error.exceptions[0]
        reason = f"the driver {self._config.value.driver} isn't running: {answers.fault('__init__', error)}"
        fields = {"method": "__init__", "reason": reason, "exception": answers.trace(error)}
        # Reasons are logged once each: a driver that can't be made is tried again and again.
        self._complaint.say(reason, error=None if isinstance(error, GatewayError) else error, extra=fields)
        self._fail(reason)

    def _fail(self, reason: str, *, overdue: bool = False) -> None:
        state = self.state.value
        erred = state.erred if reason == state.failure else time.monotonic()
        self.state.set(replace(state, failure=reason, error=reason, erred=erred, overdue=overdue or state.overdue))

    # the end

    async def _close(self) -> None:
        """Closes a driver that has ``close``, and waits for at most CLOSING; for CLOSING_LAST once hurried."""
        driver, self._driver = self._driver, None
        close = getattr(driver, "close", None)
        if not callable(close):
            return
        name, began = self._config.value.name, asyncio.get_running_loop().time()
        closing = self._threads.call(f"{name} close", partial(answers.ask, "close", close))
        # The end of the gateway may come while close() runs, and shortens its time.
        hurried = asyncio.create_task(self._hurried.wait_for(bool), name=f"{name} hurry")
        try:
            await asyncio.wait({closing, hurried}, timeout=CLOSING, return_when=asyncio.FIRST_COMPLETED)
            if hurried.done():
                await asyncio.wait({closing}, timeout=CLOSING_LAST)
        finally:
            hurried.cancel()

        if not closing.done():
            seconds = round(asyncio.get_running_loop().time() - began, 1)
            fields = {"method": "close", "seconds": seconds}
            self._log.warning("the driver hasn't closed: close() hasn't answered for %g s", seconds, extra=fields)
        elif error := closing.exception():
            reason = str(answers.fault("close", error))
            fields = {"method": "close", "reason": reason, "exception": answers.trace(error)}
            self._log.error("the driver failed: %s", reason, extra=fields)

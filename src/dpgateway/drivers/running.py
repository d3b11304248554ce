"""One resource's driver while the resource is served: made, asked for its list, closed; after a failure made again.

What the driver says is one value that anyone may watch; its calls are its :class:`Lanes`. A running driver knows
nobody who watches or calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.drivers.calls_after_close import UnendedCalls
from dpgateway.drivers.contract import Context, Driver, DriverClass
from dpgateway.drivers.fitting import Fitting, Unfit, given
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.listing import Announcements, ListLane
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
"""Seconds that it has at the end of the gateway."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a running driver says."""

    devices: tuple[Device, ...] | None = None
    """Its last list; None before the first one."""
    failure: str = ""
    """Why it doesn't say what there is now; empty while it does, and until its first list is due."""
    listed: float | None = None
    """When it gave that list, in seconds of the monotonic clock."""
    error: str = ""
    """Its last failure, also if that is over."""
    erred: float | None = None
    """When that began, in seconds of the monotonic clock."""
    overdue: bool = False
    """The deadline of its first list is over, so nobody should wait for that list any longer."""


class RunningDriver:
    """Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        node_name: str,
        threads: Threads,
        log: logging.LoggerAdapter[logging.Logger],
        unended: UnendedCalls | None = None,
    ) -> None:
        """``config`` changes in place. ``unended`` has the calls that go on when the driver has ended."""
        self._unended = unended or UnendedCalls()
        self.said = Observable(Said())
        """Published with each list, with each failure, and when ``calls`` changes."""
        self.calls: Lanes | None = None
        """None while there is no driver to ask."""
        self._config, self._node_name, self._threads, self._log = config, node_name, threads, log
        self._known = config.value
        config.subscribe(self._configured)
        self._held: Callable[[], Collection[str]] = frozenset
        self._fitting = Fitting(None, config)
        self._driver: Driver | None = None
        self._announcements: Announcements | None = None
        self._complaint = Complaint(log, "the resource failed: %s", level=logging.ERROR)
        self._hurried = Observable(value=False)

    def inform(self, held: Callable[[], Collection[str]], unfit: Unfit) -> None:
        """What a front knows, before it runs. ``held``: see ``Context``; ``unfit``: what containers can't get."""
        self._held = held
        self._fitting = Fitting(unfit, self._config)

    @property
    def _deadline(self) -> float:
        return self._config.value.timeouts.list.total_seconds()

    @property
    def healthy(self) -> bool:
        """Whether its last list has a healthy device."""
        return any(device.health.ok for device in self.said.value.devices or ())

    def _configured(self) -> None:
        """Asks for a list at once if what changed is how often, or whether its devices can be given: mounts may be
        missing on the host, and of a driver that can say what it gives the whole answer is judged.
        """
        before, self._known = self._known, self._config.value
        if before.refresh == self._known.refresh and before.mounts == self._known.mounts:
            previews = self.calls is not None and "preview" in self.calls.abilities
            if not previews or given(before) == given(self._known):
                return
        if self._announcements is not None:
            self._announcements.event.set()

    async def run(self) -> None:
        """Makes the driver and asks it, until it is cancelled; then closes it."""
        seconds = self._deadline
        timer = asyncio.get_running_loop().call_later(seconds, self._first_list_is_due, seconds)
        try:
            await retry(self._run_once, self._failed)
        finally:
            timer.cancel()
            await self._close()

    def hurry(self) -> None:
        """The gateway ends, so a driver has less time to close."""
        self._hurried.set(value=True)

    def _first_list_is_due(self, seconds: float) -> None:
        said = self.said.value
        if said.devices is None and not said.failure:
            self._fail(f"the driver hasn't listed its devices within {seconds:g} s", overdue=True)
        else:
            self.said.set(replace(said, overdue=True))

    def _fail(self, reason: str, *, overdue: bool = False) -> None:
        said = self.said.value
        erred = said.erred if reason == said.failure else time.monotonic()
        self.said.set(replace(said, failure=reason, error=reason, erred=erred, overdue=overdue or said.overdue))

    def _failed(self, raised: Exception) -> None:
        error: BaseException = raised
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        reason = f"the driver {self._config.value.driver} isn't running: {answers.fault('__init__', error)}"
        fields = {"method": "__init__", "reason": reason, "exception": answers.trace(error)}
        self._complaint.say(reason, error=None if isinstance(error, GatewayError) else error, extra=fields)
        self._fail(reason)

    async def _run_once(self) -> None:
        self._announcements = announcements = Announcements()
        try:
            self._driver = driver = await self._make(announcements.changed)
            async with asyncio.TaskGroup() as group:
                self.calls = Lanes(driver, self._config, self._threads, group, self._log)
                self.calls.preparing.unended = self._unended
                self.said.notify()
                lane = ListLane(self._config, self._threads, announcements, self._log, self.calls.stats)
                try:
                    async with contextlib.aclosing(lane.listen(driver, self._fitting)) as heard:
                        async for answer in heard:
                            self._hear(answer)
                finally:
                    self._detach()  # nobody asks a driver that closes
        except Exception:
            await self._close()
            raise

    def _hear(self, answer: tuple[Device, ...] | str) -> None:
        if isinstance(answer, str):
            self._fail(answer)
            return
        if self.calls is not None:
            self.calls.preparing.listed(answer)
        self.said.set(replace(self.said.value, devices=answer, failure="", listed=time.monotonic()))

    def _detach(self) -> None:
        if self.calls is not None:
            self.calls.close()
        self.calls = self._announcements = None
        self.said.notify()

    async def _load(self) -> None:
        """Loads the driver, and has it check its options, if that wasn't done when the configuration was read."""
        load = self._config.value.load
        if load is not None:
            loading = self._threads.call(f"{self._config.value.name} load", load, self._deadline)
            await self._in_time(loading, "loaded")
            if self._config.value.load is load:  # else another reload has brought what is loaded
                self._config.set(self._config.value.loaded(loading.result()))

    async def _make(self, changed: Callable[[], None]) -> Driver:
        await self._load()
        config = self._config.value
        make: DriverClass | None = config.driver_class
        if config.failure or make is None:
            raise DriverError(config.failure or "it isn't installed")
        log = of_driver(config.driver, config.name)
        context = Context(config.name, self._node_name, log, changed, self._held)
        made = partial(_made, make, config.options, context)
        future = self._threads.call(f"{config.name} make", made, self._deadline)
        try:
            await self._in_time(future, "made")
        except asyncio.CancelledError:
            future.add_done_callback(self._made_in_vain)
            raise
        return future.result()

    async def _in_time(self, future: asyncio.Future[Any], done: str) -> None:
        """Waits for the future, and says so when the time is over. Doesn't cancel it."""
        seconds = self._deadline
        if (await asyncio.wait({future}, timeout=seconds))[0]:
            return
        reason = f"the driver {self._config.value.driver} hasn't been {done} within {seconds:g} s"
        self._log.error("the resource failed: %s", reason, extra={"reason": reason})
        self._fail(reason)
        await asyncio.wait({future})
        if future.exception() is None:
            self._log.info("the driver has been %s, after its deadline", done)

    def _made_in_vain(self, future: asyncio.Future[Driver]) -> None:
        """The resource stopped while its driver was being made: nobody else knows that there is one to close."""
        if future.exception() is None and callable(close := getattr(future.result(), "close", None)):
            self._threads.call(f"{self._config.value.name} close", close)

    async def _close(self) -> None:
        """Closes the driver, if there is one that has ``close``."""
        driver, self._driver = self._driver, None
        close = getattr(driver, "close", None)
        if not callable(close):
            return
        future = self._threads.call(f"{self._config.value.name} close", partial(answers.ask, "close", close))
        now = asyncio.get_running_loop().time
        began = now()
        await self._wait_for(future)
        if not future.done():
            seconds = round(now() - began, 1)
            fields = {"method": "close", "seconds": seconds}
            self._log.warning("the driver hasn't closed: close() hasn't answered for %g s", seconds, extra=fields)
        elif error := future.exception():
            reason = str(answers.fault("close", error))
            fields = {"method": "close", "reason": reason, "exception": answers.trace(error)}
            self._log.error("the driver failed: %s", reason, extra=fields)

    async def _wait_for(self, future: asyncio.Future[Any]) -> None:
        """Waits for a driver that closes, for as long as it has."""
        hurried = asyncio.create_task(self._hurried.wait_for(bool), name=f"{self._config.value.name} hurry")
        try:
            await asyncio.wait({future, hurried}, timeout=CLOSING, return_when=asyncio.FIRST_COMPLETED)
            if hurried.done():
                await asyncio.wait({future}, timeout=CLOSING_LAST)
        finally:
            hurried.cancel()


def _made(make: DriverClass, options: object, context: Context) -> Driver:
    return answers.ask("__init__", lambda: make(options, context))

"""One resource's driver for as long as the gateway runs: made, asked, and made anew when it couldn't be made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.offer.offering import Offering
from dpgateway.drivers import answers
from dpgateway.drivers.contract import Context, Driver, DriverClass
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.listing import Announcements, ListLane
from dpgateway.errors import DriverError
from dpgateway.model import Device
from dpgateway.process.pauses import doubling
from dpgateway.process.worker import Worker

LONGEST_PAUSE = 60.0
"""Seconds between two attempts to make a driver."""
CLOSING = 5.0
"""Seconds that a driver has for its end before another one is made."""


class Attached(Protocol):
    """Who is told that there is a driver to ask, or none."""

    def __call__(self, lanes: Lanes | None) -> None: ...


class RunningDriver:
    """Runs one driver; the only place where its failures are caught widely."""

    def __init__(
        self,
        config: ResourceConfig,
        node_name: str,
        offering: Offering,
        attach: Attached,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._config, self._node_name = config, node_name
        self._offering, self._attach, self._log = offering, attach, log
        self._deadline = config.timeouts.list.total_seconds()
        self._worker = Worker(f"{config.name} list")
        self._driver: Driver | None = None
        self._complaint = ""
        self._listed = self._overdue = False
        self.failure = ""
        """Why the driver doesn't say what there is; empty while it does, and before it first should have."""

    def take(self, devices: Sequence[Device]) -> None:
        self.failure, self._listed = "", True
        self._offering.take(devices)

    def fail(self, reason: str) -> None:
        """The kubelet gets a list without the driver's once it has waited long enough, and not before."""
        self.failure = reason
        self._offering.fail(reason, offer=self._overdue)

    async def run(self) -> None:
        """Never returns."""
        failures = 0
        timer = asyncio.get_running_loop().call_later(self._deadline, self._first_list_is_overdue)
        try:
            while True:
                try:
                    await self._run_once()
                except Exception as raised:
                    self._failed(raised)
                    await self.close(CLOSING)
                failures += 1
                await asyncio.sleep(doubling(failures, LONGEST_PAUSE))
        finally:
            timer.cancel()

    def _first_list_is_overdue(self) -> None:
        self._overdue = True
        if not self._listed:
            self.fail(self.failure or f"the driver hasn't listed its devices within {self._deadline:g} s")

    def _failed(self, raised: Exception) -> None:
        error: BaseException = raised
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        reason = f"the driver {self._config.driver} isn't running: {answers.fault('__init__', error)}"
        if reason != self._complaint:
            expected = isinstance(error, DriverError)
            self._log.error("the resource failed: %s", reason, exc_info=None if expected else error)
        self._complaint = reason
        self.fail(reason)

    async def _run_once(self) -> None:
        announcements = Announcements()
        self._driver = driver = await self._make(announcements.changed)
        async with asyncio.TaskGroup() as group:
            lanes = Lanes(driver, self._config, group, self._offering, self._log)
            self._attach(lanes)
            self._offering.released = lanes.release
            try:
                taker = _Taker(self, lanes)
                lane = ListLane(self._config, self._worker, announcements, taker, self._log)
                await lane.run(driver)
            finally:
                self._attach(None)
                self._offering.released = lambda _: None
                lanes.close()

    async def _make(self, changed: Callable[[], None]) -> Driver:
        make: DriverClass | None = self._config.driver_class
        if self._config.failure or make is None:
            raise DriverError(self._config.failure or "it isn't installed")
        context = Context(self._config.name, self._node_name, self._log, changed)
        future = self._worker.call(lambda: make(self._config.options, context))
        done, _ = await asyncio.wait({future}, timeout=self._deadline)
        if not done:
            self.fail(f"the driver hasn't been made within {self._deadline:g} s")
        try:
            return await future
        except DriverError:
            raise
        except Exception as error:
            raise answers.fault("__init__", error) from error

    async def close(self, seconds: float) -> None:
        """Closes the driver, if there is one that wants that, waiting for ``seconds`` at most."""
        driver, self._driver = self._driver, None
        close = getattr(driver, "close", None)
        if not callable(close):
            return
        worker = Worker(f"{self._config.name} close")
        future = worker.call(close)
        worker.retire()
        done, _ = await asyncio.wait({future}, timeout=seconds)
        if not done:
            self._log.warning("the driver hasn't closed: close() hasn't answered for %g s", seconds)
        elif error := future.exception():
            self._log.error("the driver failed: %s", answers.fault("close", error), exc_info=error)


class _Taker:
    """A new list is news for the prepare lane, too."""

    def __init__(self, running: RunningDriver, lanes: Lanes) -> None:
        self._running, self._lanes = running, lanes

    def take(self, devices: Sequence[Device]) -> None:
        self._lanes.prepare_lane.listed(devices)
        self._running.take(devices)

    def fail(self, reason: str) -> None:
        self._running.fail(reason)

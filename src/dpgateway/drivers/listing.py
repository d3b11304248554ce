"""The list lane: asks one driver for its devices, again and again, never two calls at once.

When the deadline passes, the lane says so and goes on waiting; the late answer is taken when it comes. The last list
and its version are the running driver's (drivers/running.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.drivers.contract import Driver
from dpgateway.drivers.fitting import Fitting
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import backoff
from dpgateway.kit.threads import Threads
from dpgateway.model import Device

Answer = tuple[Device, ...] | str
"""All devices, or why the driver doesn't say what there is."""

FIRST_RETRY = 1.0
"""Seconds until a driver that failed to list is asked again; doubling up to ``refresh``."""

PATIENCE = 3
"""Times in a row that a driver may announce a change while it lists. After that it gets a rest before each call."""
FIRST_REST, LONGEST_REST = 0.01, 1.0
"""Seconds: the first rest, doubling up to the longest."""


class Announcements:
    """``Context.changed``: from any thread, at any time, also before the first list and after the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._underway = False
        self.event = asyncio.Event()

    def changed(self) -> None:
        if self._underway:  # a thread that calls this without end must not fill the loop's queue
            return
        self._underway = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._underway = False
        self.event.set()


class ListLane:
    """Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        threads: Threads,
        announcements: Announcements,
        log: logging.LoggerAdapter[logging.Logger],
        stats: CallStats,
    ) -> None:
        """``config``: its deadline and its pause count from the next call on."""
        self._config = config
        self._threads, self._announcements, self._log, self._stats = threads, announcements, log, stats
        self._failures = 0
        self._last_failure = ""
        self._last: tuple[Device, ...] = ()

    async def listen(self, driver: Driver, fitting: Fitting | None = None) -> AsyncGenerator[Answer, None]:
        """What the driver says, one answer after another, without end; as ``fitting`` judges it."""
        restless = 0
        while True:
            self._announcements.event.clear()
            async with contextlib.aclosing(self._ask(driver, fitting)) as said:
                async for answer in said:
                    yield answer
            restless = restless + 1 if self._announcements.event.is_set() else 0
            if restless > PATIENCE:
                await asyncio.sleep(backoff(restless - PATIENCE, LONGEST_REST, FIRST_REST))
            refresh = self._config.value.refresh.total_seconds()
            pause = backoff(self._failures, refresh, FIRST_RETRY) if self._failures else refresh
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._announcements.event.wait()

    async def _ask(self, driver: Driver, fitting: Fitting | None) -> AsyncGenerator[Answer, None]:
        """One answer; or two, if the first says that the driver is late."""
        asked, late = time.monotonic(), False
        name, deadline = self._config.value.name, self._config.value.timeouts.list.total_seconds()

        def call() -> tuple[tuple[Device, ...], tuple[Device, ...]]:
            listed = answers.ask("devices", lambda: answers.devices(driver.devices(), self._last))
            return listed, listed if fitting is None else fitting.judged(driver, listed)

        future = self._threads.call(f"{name} list", call, deadline)
        try:
            done, _ = await asyncio.wait({future}, timeout=deadline)
            if not done:
                late = True
                self._stats.add("devices", "timeout", asked)
                yield self._failed(f"the driver hasn't answered for {deadline:g} s")
            self._last, devices = await future
        except Exception as raised:
            self._failures += 1
            if not late:
                self._stats.add("devices", answers.outcome(raised), asked)
            yield self._failed(f"the driver failed: {answers.fault('devices', raised)}", raised)
            return
        finally:
            future.cancel()  # nobody wants an answer that comes after the lane's end
        if not late:
            self._stats.add("devices", "success", asked)
        if self._last_failure:
            seconds = time.monotonic() - asked
            self._log.info("the driver lists its devices again, after %.1f s", seconds, extra={"seconds": seconds})
        self._failures, self._last_failure = 0, ""
        yield devices

    def _failed(self, reason: str, error: Exception | None = None) -> Answer:
        if reason != self._last_failure:
            fields = {"method": "devices", "reason": reason, "exception": answers.trace(error)}
            self._log.error("every device is Unhealthy: %s", reason, extra=fields)
        self._last_failure = reason
        return reason

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
        config: ResourceConfig,
        threads: Threads,
        announcements: Announcements,
        log: logging.LoggerAdapter[logging.Logger],
        stats: CallStats,
    ) -> None:
        self._name = config.name
        self._deadline = config.timeouts.list.total_seconds()
        self._refresh = config.refresh.total_seconds()
        self._threads, self._announcements, self._log, self._stats = threads, announcements, log, stats
        self._failures = 0
        self._last_failure = ""
        self._last: tuple[Device, ...] = ()
        self._anew = False
        """Whether what was judged before has to be judged again."""

    def amend(self, config: ResourceConfig) -> None:
        """Another deadline, from the next call on, and another pause: it begins with a call at once."""
        self._deadline = config.timeouts.list.total_seconds()
        refresh, self._refresh = self._refresh, config.refresh.total_seconds()
        if refresh != self._refresh:
            self._announcements.event.set()

    def judge_again(self) -> None:
        """What containers may have is something else now."""
        self._anew = True
        self._announcements.event.set()

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
            pause = backoff(self._failures, self._refresh, FIRST_RETRY) if self._failures else self._refresh
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._announcements.event.wait()

    async def _ask(self, driver: Driver, fitting: Fitting | None) -> AsyncGenerator[Answer, None]:
        """One answer; or two, if the first says that the driver is late."""
        asked, late = time.monotonic(), False
        anew, self._anew = self._anew, False

        def call() -> tuple[tuple[Device, ...], tuple[Device, ...]]:
            listed = answers.ask("devices", lambda: answers.devices(driver.devices(), self._last))
            return listed, listed if fitting is None else fitting.judged(driver, listed, anew=anew)

        future = self._threads.call(f"{self._name} list", call, self._deadline)
        try:
            done, _ = await asyncio.wait({future}, timeout=self._deadline)
            if not done:
                late = True
                self._stats.add("devices", "timeout", asked)
                yield self._failed(f"the driver hasn't answered for {self._deadline:g} s")
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

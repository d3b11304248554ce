"""The list lane: what the driver says there is. One thread, never two calls at once.

When the deadline passes, the list stays and everything on it is Unhealthy; the late answer is taken when it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.drivers.contract import Driver
from dpgateway.model import Device
from dpgateway.process.pauses import doubling
from dpgateway.process.worker import Worker

FIRST_RETRY = 1.0
"""Seconds until a driver that failed to list is asked again; doubling up to ``refresh``."""


PATIENCE = 3
"""Times in a row that a driver may announce a change while it lists; one that always does isn't asked without pause."""
FIRST_REST, LONGEST_REST = 0.01, 1.0
"""Seconds."""


class Taker(Protocol):
    """Who is told what the driver says."""

    def take(self, devices: tuple[Device, ...]) -> None: ...

    def fail(self, reason: str) -> None: ...


class Announcements:
    """``Context.changed``: from any thread, at any time, also before the first list and after the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told = False
        self.event = asyncio.Event()

    def changed(self) -> None:
        if self._told:  # a thread that says it without end must not fill the loop's queue
            return
        self._told = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._told = False
        self.event.set()


class ListLane:
    """Asks one driver for its devices for as long as it runs."""

    def __init__(
        self,
        config: ResourceConfig,
        worker: Worker,
        announcements: Announcements,
        taker: Taker,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._deadline = config.timeouts.list.total_seconds()
        self._refresh = config.refresh.total_seconds()
        self._worker, self._announcements, self._taker, self._log = worker, announcements, taker, log
        self._failures = 0
        self._last_failure = ""

    async def run(self, driver: Driver) -> None:
        """Never returns."""
        restless = 0
        while True:
            self._announcements.event.clear()
            await self._ask(driver)
            restless = restless + 1 if self._announcements.event.is_set() else 0
            if restless > PATIENCE:
                await asyncio.sleep(doubling(restless - PATIENCE, LONGEST_REST, FIRST_REST))
            pause = doubling(self._failures, self._refresh, FIRST_RETRY) if self._failures else self._refresh
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._announcements.event.wait()

    async def _ask(self, driver: Driver) -> None:
        asked = time.monotonic()
        future = self._worker.call(self._listing(driver))
        done, _ = await asyncio.wait({future}, timeout=self._deadline)
        if not done:
            self._failed(f"the driver hasn't answered for {self._deadline:g} s")
        try:
            devices = await future
        except Exception as raised:
            error = answers.fault("devices", raised)
            self._failures += 1
            self._failed(f"the driver failed: {error}", raised)
            return
        if self._last_failure:
            self._log.info("the driver lists its devices again, after %.1f s", time.monotonic() - asked)
        self._failures, self._last_failure = 0, ""
        self._taker.take(devices)

    @staticmethod
    def _listing(driver: Driver) -> Callable[[], tuple[Device, ...]]:
        return lambda: answers.devices(driver.devices())

    def _failed(self, reason: str, error: Exception | None = None) -> None:
        if reason != self._last_failure:
            self._log.error("every device is Unhealthy: %s", reason, exc_info=error)
        self._last_failure = reason
        self._taker.fail(reason)

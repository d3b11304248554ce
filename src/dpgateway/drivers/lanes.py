"""One driver's three lanes, which never wait for one another, behind the calls that a resource makes.

list      the driver's devices, asked at the start, after ``changed``, and every ``refresh``   (drivers/listing.py)
allocate  ``allocate`` and ``prefer``, one at a time                                           (drivers/allocating.py)
prepare   ``prepare`` and ``release``, at once for different devices                           (drivers/preparing.py)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.drivers.allocating import AllocateLane
from dpgateway.drivers.busy import persist
from dpgateway.drivers.contract import Driver, abilities
from dpgateway.drivers.preparing import PrepareLane
from dpgateway.errors import Busy, DeviceUnavailable, DriverError, DriverFault, DriverTimeout, GatewayError
from dpgateway.model import Allocation, Device

_KINDS = (Busy, DeviceUnavailable, DriverError, DriverTimeout, DriverFault, GatewayError)


class Holders(Protocol):
    """Which devices containers hold."""

    def unheld(self, devices: Iterable[Device]) -> Sequence[Device]:
        """Those that certainly nobody holds."""

    def still_free(self, devices: Iterable[Device]) -> Sequence[Device]:
        """Those that nobody got since nobody held them."""


class Lanes:
    """What a resource may ask of its driver. Every error names the resource and the driver."""

    def __init__(
        self,
        driver: Driver,
        config: ResourceConfig,
        group: asyncio.TaskGroup,
        holders: Holders,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.abilities = abilities(driver)
        self.prepare_lane = PrepareLane(config.name, group, log)
        self._driver, self._config, self._log = driver, config, log
        self._allocate_lane = AllocateLane(config.name)
        self._holders = holders

    async def allocate(self, devices: Sequence[Device]) -> Allocation:
        """Asks the driver until the ``allocate`` deadline."""
        devices = tuple(devices)
        self.prepare_lane.given(devices)
        deadline = self._config.timeouts.allocate.total_seconds()
        try:
            return await persist(
                lambda end: self._allocate_lane.call(
                    "allocate",
                    lambda: answers.allocation(self._driver.allocate(devices)),
                    deadline,
                    lambda _: self._allocated_late(devices),
                    end,
                ),
                deadline,
            )
        except GatewayError as error:
            raise self._blamed(error, devices) from error

    def _allocated_late(self, devices: Sequence[Device]) -> None:
        """Nobody got them by that call; another one may have given them away meanwhile."""
        free = self._holders.unheld(devices)
        names = ", ".join(device.id for device in devices)
        self._log.info("allocate() of %s answered after its deadline; %d are free again", names, len(free))
        self.release(free)

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int
    ) -> tuple[Device, ...]:
        """Asks the driver until the ``prefer`` deadline."""
        available, must = tuple(available), tuple(must_include)
        function = partial(self._driver.prefer, available, must, size)  # type: ignore[attr-defined]  # an ability
        deadline = self._config.timeouts.prefer.total_seconds()
        try:
            answer = await self._allocate_lane.call(
                "prefer", lambda: answers.preferred(function(), available, size), deadline
            )
        except GatewayError as error:
            raise self._blamed(error, ()) from error
        return answer

    async def prepare(self, devices: Sequence[Device], *, once: bool = True) -> None:
        """Asks the driver until the ``prepare`` deadline; the call goes on after it.

        ``once``: a Busy driver isn't asked again, for the kubelet calls PreStartContainer again.
        """
        devices = tuple(devices)
        function = partial(self._driver.prepare, devices)  # type: ignore[attr-defined]  # an ability
        deadline = self._config.timeouts.prepare.total_seconds()
        try:
            if once:
                await self.prepare_lane.prepare(devices, function, deadline)
            else:
                await persist(
                    lambda end: self.prepare_lane.prepare(devices, function, end - time.monotonic()), deadline
                )
        except GatewayError as error:
            raise self._blamed(error, devices) from error

    def release(self, devices: Sequence[Device]) -> None:
        """Tells the driver, if it wants to know; nobody waits for it. Not of those that are given away meanwhile."""
        if "release" not in self.abilities or not devices:
            return
        function = self._driver.release  # type: ignore[attr-defined]  # an ability
        with contextlib.suppress(DriverError):  # the driver ended, and with it whatever it held
            self.prepare_lane.release(devices, function, self._holders.still_free).add_done_callback(self._released)

    def close(self) -> None:
        """The driver ended."""
        self.prepare_lane.close()
        self._allocate_lane.close()

    def _released(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._log.error("the driver failed: %s", answers.fault("release", error), exc_info=error)

    def _blamed(self, error: GatewayError, devices: Sequence[Device]) -> GatewayError:
        """The same error, saying whose it is; the kubelet shows it to whoever reads the pod's events."""
        named = f", device {', '.join(device.id for device in devices)}" if devices else ""
        text = f"resource {self._config.name}{named}: driver {self._config.driver}: {error}"
        kind = next(kind for kind in _KINDS if isinstance(error, kind))
        if kind is DriverFault:
            self._log.error("the driver broke its contract: %s", error, exc_info=error.__cause__)
        return kind(text)

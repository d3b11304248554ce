"""The calls of one running driver, in three lanes that don't wait for one another:

list      ``devices``, one call at a time: at the start, after ``changed``, every ``refresh``  (drivers/listing.py)
allocate  ``allocate``, ``preview`` and ``prefer``, one call at a time                         (drivers/allocating.py)
prepare   ``prepare`` and ``release``, concurrent for different devices                        (drivers/preparing.py)

The one exception: an Allocate waits for a running release of the same devices. The list lane belongs to the running
driver; :class:`Lanes` has the calls of the other two. The lanes know devices, not ids of shares. Where the kubelet
doesn't repeat a call, a Busy driver is asked again until the deadline, each time in a new turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.drivers.allocating import Abandoned, AllocateLane
from dpgateway.drivers.contract import Driver, abilities
from dpgateway.drivers.preparing import CallAfterClose, Free, PrepareLane, failure
from dpgateway.errors import Busy, DriverError, DriverFault, DriverTimeout, GatewayError
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds before a Busy driver is asked again: the first pause, doubling up to the longest."""
LAST_CHANCE = 0.1
"""Seconds before the deadline at which a Busy driver is asked for the last time."""


class Lanes:
    """The calls of one driver. Used from the event loop. Every error names the resource and the driver."""

    def __init__(
        self,
        driver: Driver,
        config: Observable[ResourceConfig],
        threads: Threads,
        group: asyncio.TaskGroup,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``config``: new deadlines take effect with the next call."""
        self.abilities = abilities(driver)
        self.stats = CallStats()
        """Statistics of the calls of all lanes, including their waits for a turn."""
        self._driver: Any = driver  # Any: it has the methods among its abilities
        self._config, self._log = config, log
        self._allocating = AllocateLane(config.value.name, threads)
        self.preparing = PrepareLane(config.value.name, threads, group, log)
        """The prepare lane: what it has under way, and its end."""

    def close(self) -> list[CallAfterClose]:
        """Lets no further call begin. Returns those of the prepare lane that go on."""
        self._allocating.close()
        return self.preparing.close()

    # the allocate lane

    async def allocate(
        self, devices: Sequence[Device], abandoned: Abandoned | None, options: object = None
    ) -> Allocation:
        """Asks the driver until the ``allocate`` deadline, once no release of the devices is under way.

        ``abandoned`` is called if this fails while the driver's call goes on. ``options``: a claim's, for a driver with
        ``with_options``.
        """
        devices = tuple(devices)
        if "prepare" in self.abilities:
            self.preparing.given(devices)
        seconds = self._config.value.timeouts.allocate.total_seconds()
        end = time.monotonic() + seconds
        call = partial(self._allocation, devices, options)

        # A release under way is of the previous container, and might undo the effect of allocate().
        with self._blaming("allocate", devices):
            if self.preparing.releasing:
                try:
                    await self.preparing.released(devices, seconds)
                except DriverTimeout as error:
                    raise DriverTimeout(f"allocate() wasn't called within {seconds:g} s, because {error}") from error
            return await _until_free(partial(self._allocating.call, "allocate", call, seconds, end, abandoned), end)

    async def repeat(self, devices: Sequence[Device]) -> Allocation:
        """The answer of ``allocate`` for devices that a container has already, to compare with the one that the kubelet
        repeats. Asked once, with the same deadline; a late answer changes nothing.
        """
        seconds = self._config.value.timeouts.allocate.total_seconds()
        return await self._once("allocate", partial(self._allocation, tuple(devices)), seconds, devices)

    async def preview(self, device: Device) -> Allocation:
        """The answer that ``allocate`` would give for this device alone, without side effects; for a driver with
        ``preview``.
        """
        (own,) = answers.own([device])

        def call() -> Allocation:
            return answers.ask("preview", lambda: answers.allocation(self._driver.preview(own), "preview"))

        return await self._once("preview", call, self._config.value.timeouts.allocate.total_seconds(), [device])

    async def show(self, devices: Sequence[Device]) -> Allocation:
        """What a container needs to monitor devices that others may have. A driver with ``prepare`` may begin that in
        ``allocate``, on a device in use, so it is asked for a ``preview`` of each device.
        """
        if "preview" not in self.abilities:
            if "prepare" in self.abilities:
                with self._blaming("allocate", devices):
                    raise DriverError("it can't show devices that others have: it has prepare(), but no preview()")
            return await self.repeat(devices)
        found = [await self.preview(device) for device in devices]
        return Allocation(
            env={name: value for one in found for name, value in one.env.items()},
            device_nodes=tuple(dict.fromkeys(node for one in found for node in one.device_nodes)),
            mounts=tuple(dict.fromkeys(mount for one in found for mount in one.mounts)),
            cdi_devices=tuple(dict.fromkeys(name for one in found for name in one.cdi_devices)),
        )

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int
    ) -> tuple[Device, ...]:
        """Asks the driver until the ``prefer`` deadline."""
        available, must = tuple(available), tuple(must_include)

        def call() -> tuple[Device, ...]:
            ask = partial(self._driver.prefer, answers.own(available), answers.own(must), size)
            return answers.ask("prefer", lambda: answers.preferred(ask(), available, size))

        return await self._once("prefer", call, self._config.value.timeouts.prefer.total_seconds())

    def _allocation(self, devices: Sequence[Device], options: object = None) -> Allocation:
        """Asks the driver, on its thread."""
        driver = self._driver
        if options is not None:
            driver = answers.ask("with_options", partial(driver.with_options, options))
        return answers.ask("allocate", lambda: answers.allocation(driver.allocate(answers.own(devices))))

    async def _once(self, method: str, function: Callable[[], T], seconds: float, devices: Sequence[Device] = ()) -> T:
        with self._blaming(method, devices):
            return await self._allocating.call(method, function, seconds, time.monotonic() + seconds)

    # the prepare lane

    async def prepare(self, devices: Sequence[Device], *, once: bool = True, options: object = None) -> None:
        """Asks the driver until the ``prepare`` deadline; a running call goes on after it.

        ``options``: as for :meth:`allocate`. ``once``: a Busy driver isn't asked again, because the kubelet calls
        PreStartContainer again.
        """
        devices = tuple(devices)
        seconds = self._config.value.timeouts.prepare.total_seconds()
        end = time.monotonic() + seconds

        def call() -> None:
            driver = self._driver
            if options is not None:
                driver = answers.ask("with_options", partial(driver.with_options, options))
            answers.ask("prepare", lambda: driver.prepare(answers.own(devices)))

        with self._blaming("prepare", devices):
            if once:
                await self.preparing.prepare(devices, call, seconds, options)
            else:
                await _until_free(lambda: self.preparing.prepare(devices, call, end - time.monotonic(), options), end)

    @property
    def busy(self) -> frozenset[str]:
        """The devices for which a release would wait: those of a prepare or release under way."""
        return self.preparing.busy

    def release(self, devices: Sequence[Device], free: Free, told: Callable[[], None] | None = None) -> None:
        """Queues a release, and returns at once. For a driver with ``prepare`` alone, the release just waits for a
        prepare that goes on past its deadline: until then the device isn't free.

        At the call's turn, ``free`` returns the devices that are still free: some may have been granted meanwhile.
        ``told`` is called after the call, failed or not, and at once for a driver with neither ability; it isn't called
        if the driver ended before the call's turn.
        """
        if self.abilities.isdisjoint({"prepare", "release"}) or not devices:
            if told is not None:
                told()
            return
        asked = time.monotonic()

        def call(released: Sequence[Device]) -> None:
            if "release" in self.abilities:
                answers.ask("release", lambda: self._driver.release(answers.own(released)))

        def ended(task: asyncio.Task[Exception | None]) -> None:
            error = failure(task)
            self.stats.add("release", "success" if error is None else answers.outcome(error), asked)
            if error is not None:
                reason, names = str(answers.fault("release", error)), [device.id for device in devices]
                fields = {"method": "release", "devices": names, "reason": reason, "exception": answers.trace(error)}
                early = isinstance(error, answers.DriverEnded)
                text = "%s before it released its devices" if early else "the driver failed: %s"
                self._log.log(logging.WARNING if early else logging.ERROR, text, reason, extra=fields)
            # A failed release counts, too: the driver was told. One that ended wasn't, and the next driver is.
            if told is not None and not isinstance(error, answers.DriverEnded):
                told()

        with contextlib.suppress(answers.DriverEnded):  # the next driver is told
            self.preparing.release(devices, call, free).add_done_callback(ended)

    @contextlib.contextmanager
    def _blaming(self, method: str, devices: Sequence[Device]) -> Iterator[None]:
        """Adds the resource, the devices and the driver to errors, because people read them in the pod's events."""
        asked, outcome = time.monotonic(), "success"
        try:
            yield
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except GatewayError as error:
            config, outcome = self._config.value, answers.outcome(error)
            named = f", device {', '.join(device.id for device in devices)}" if devices else ""
            text = f"resource {config.name}{named}: driver {config.driver}: {error}"
            # The kind is kept, because callers distinguish errors by it.
            kind = next(kind for kind in answers.KINDS if isinstance(error, kind))
            if kind is DriverFault:
                names = [device.id for device in devices] or None
                fields = {"devices": names, "reason": str(error), "exception": error.trace}
                self._log.error("the driver broke its contract: %s", error, extra=fields)
            raise kind(text) from error
        finally:
            self.stats.add(method, outcome, asked)


async def _until_free(ask: Callable[[], Awaitable[T]], end: float) -> T:
    """Retries a Busy driver with backoff, for calls that the kubelet doesn't repeat: Allocate is sent once (every
    release).

    ``end``: of all attempts, by time.monotonic(). Raises Busy if the driver is still busy at the last attempt.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return await ask()
        except Busy:
            left = end - LAST_CHANCE - time.monotonic()
            if left <= 0:
                raise
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)

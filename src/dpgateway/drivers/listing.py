"""The list lane: polls one driver for its devices, one call at a time.

Theory of operation:

- The driver is asked at the start, after it announces a change, and every ``refresh``; after a failure with exponential
  backoff, from one second up to ``refresh``. A driver that announces a change during each of its own calls is slowed
  down, with exponential backoff, too: else it would keep a core busy.
- At the deadline the lane reports a failure and goes on waiting; a late answer is taken when it comes.
- Each healthy device is judged on the same thread (:class:`Fitting`). A device that no container can get isn't Healthy:
  its pod would be scheduled to this node again and again, and fail. ``preview`` is the driver's forecast of
  ``allocate``, and the front judges it. The host must have the configured mounts in any case.
- A device listed as the same object as before is judged once per configuration. Two are judged again with each list: an
  unfit device, because the obstacle may be gone by now, and one with CDI devices, because their spec may be.

The running driver keeps the last list and its version (drivers/running.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import operator
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from dpgateway.config import ResourceConfig
from dpgateway.drivers import answers
from dpgateway.drivers.contract import Driver
from dpgateway.errors import GatewayError
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import backoff
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device, Mount

Answer = tuple[Device, ...] | str
"""All devices, or the reason of the driver's failure."""

FIRST_RETRY = 1.0
"""Seconds until a driver that failed to list is asked again; doubling up to ``refresh``."""

PATIENCE = 3
"""Calls in a row during which a driver may announce a change before it is slowed down."""
FIRST_REST, LONGEST_REST = 0.01, 1.0
"""Seconds of rest before such a driver's next call: the first, doubling up to the longest."""

Unfit = Callable[[ResourceConfig, str, Allocation], str]
"""Returns why a front can't give any container the device of this id with this allocation; empty if it can."""
UNFIT = "it can't be given"
"""The prefix of an unfit device's reason."""


class ListLane:
    """Used from the event loop, except :meth:`changed`. :meth:`run` is called once."""

    def __init__(
        self, config: Observable[ResourceConfig], threads: Threads, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        """``config``: a new deadline or ``refresh`` takes effect with the next call."""
        self._config, self._threads, self._log = config, threads, log
        self._loop, self._wanted, self._announced = asyncio.get_running_loop(), asyncio.Event(), False
        self._failures = 0
        self._complaint = Complaint(log, "every device is Unhealthy: %s", level=logging.ERROR)
        self._failing: float | None = None
        """The beginning of the first call since the last good one that failed; None if none did."""
        self._last: tuple[Device, ...] = ()
        """The driver's last list, before judging."""

    def changed(self) -> None:
        """``Context.changed``: from any thread, at any time, even before the first list and after the end."""
        if self._announced:  # a thread that calls this in a loop must not fill the event loop's queue
            return
        self._announced = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._announced = False
        self._wanted.set()

    def ask(self) -> None:
        """Asks the driver now; during a call, again after it."""
        self._wanted.set()

    async def run(self, driver: Driver, fitting: Fitting, stats: CallStats, hear: Callable[[Answer], None]) -> None:
        """Asks until it is cancelled. ``hear`` gets each answer; ``stats`` counts the calls."""
        restless = 0
        while True:
            self._wanted.clear()  # before the call: a change during it may be missing from its answer
            await self._ask(driver, fitting, stats, hear)
            # Wanted again already: the driver announced a change during the call.
            restless = restless + 1 if self._wanted.is_set() else 0
            if restless > PATIENCE:
                await asyncio.sleep(backoff(restless - PATIENCE, LONGEST_REST, FIRST_REST))
            refresh = self._config.value.refresh.total_seconds()
            pause = backoff(self._failures, refresh, FIRST_RETRY) if self._failures else refresh
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()

    async def _ask(self, driver: Driver, fitting: Fitting, stats: CallStats, hear: Callable[[Answer], None]) -> None:
        """Calls the driver once. ``hear`` gets one answer; or two, the first about the missed deadline."""
        asked, began, late, error = time.monotonic(), self._loop.time(), False, None
        name, deadline = self._config.value.name, self._config.value.timeouts.list.total_seconds()

        def call() -> tuple[tuple[Device, ...], tuple[Device, ...]]:
            listed = answers.ask("devices", lambda: answers.devices(driver.devices(), self._last))
            return listed, fitting.judged(driver, listed)

        future = self._threads.call(f"{name} list", call, deadline)
        try:
            if not (await asyncio.wait({future}, timeout=deadline))[0]:
                late = True
                stats.add("devices", "timeout", asked)
                hear(self._failed(f"the driver hasn't answered for {deadline:g} s", began))
            self._last, devices = await future
        except Exception as raised:
            error = raised
        finally:
            future.cancel()  # at the lane's end the answer has no receiver

        # A late call is counted already, as a timeout; its answer is heard all the same.
        if not late:
            stats.add("devices", "success" if error is None else answers.outcome(error), asked)
        if error is not None:
            self._failures += 1
            hear(self._failed(f"the driver failed: {answers.fault('devices', error)}", began, error))
            return
        if self._failing is not None:
            seconds, self._failing = self._loop.time() - self._failing, None
            self._log.info("the driver lists its devices again, after %.1f s", seconds, extra={"seconds": seconds})
            self._complaint.over()
        self._failures = 0
        hear(devices)

    def _failed(self, reason: str, began: float, error: Exception | None = None) -> str:
        self._failing = began if self._failing is None else self._failing
        self._complaint.say(reason, extra={"method": "devices", "reason": reason, "exception": answers.trace(error)})
        return reason


class Fitting:
    """Judges the lists of one running driver: marks devices that no container can get Unhealthy.

    ``_judged`` caches the results of the last list, for one configuration (``_given``).
    """

    def __init__(self, unfit: Unfit | None, config: Observable[ResourceConfig]) -> None:
        self._unfit, self._config = unfit, config
        self._judged: dict[str, tuple[Device, Device]] = {}
        """`_judged` contains the device as listed and as judged, keyed by id."""
        self._given: tuple[object, ...] = ()
        """The configuration's additions on which ``_judged`` is based."""
        self._named: set[str] = set()
        """The ids of the devices whose last preview has CDI devices."""

    def judged(self, driver: Any, devices: tuple[Device, ...]) -> tuple[Device, ...]:  # noqa: ANN401
        """The list, with unfit devices Unhealthy. The same tuple if no device is unfit."""
        # Other additions make other allocations, so nothing judged before counts.
        config, preview = self._config.value, getattr(driver, "preview", None)
        if (gives := given(config)) != self._given:
            self._given, self._judged = gives, {}

        # A missing mount makes all devices unfit; without one, a driver without preview needs no judging.
        lacking = next((f"{UNFIT}: mounts[{n}]: {why}" for n, why in missing(config.mounts).items()), "")
        if not lacking and not callable(preview):
            self._judged = {}
            return devices

        # An unfit device keeps its object while its reason stays, so that the inventory sees no change.
        before, self._judged = {} if lacking else self._judged, {}
        named, self._named = self._named, set()
        listed: list[Device] = []
        for device in devices:
            known = before.get(device.id)
            now = known[1] if known is not None and known[0] is device else None
            if (now is not device or device.id in named) and device.health.ok:
                why = lacking or self._unfit_now(preview, device)
                if not why:
                    now = device
                elif now is None or now.health.reason != why:
                    now = answers.unhealthy(device, why)
            listed.append(now or device)
            if not lacking:
                self._judged[device.id] = device, listed[-1]
        return devices if all(map(operator.is_, listed, devices)) else tuple(listed)

    def _unfit_now(self, preview: Any, device: Device) -> str:  # noqa: ANN401
        """Why a device that its driver calls healthy can't be given; empty if it can."""
        (own,) = answers.own([device])
        try:
            allocation = answers.ask("preview", lambda: answers.allocation(preview(own), "preview"))
        except GatewayError as error:
            return f"{UNFIT}: {error}"
        if allocation.cdi_devices:
            self._named.add(device.id)
        why = "" if self._unfit is None else self._unfit(self._config.value, device.id, allocation)
        return f"{UNFIT}: {why}" if why else ""


def given(config: ResourceConfig) -> tuple[object, ...]:
    """The configuration's own additions to a container."""
    return config.env, config.annotations, config.mounts, config.shares


def missing(mounts: Sequence[Mount]) -> dict[int, str]:
    """Reasons for mounts that the host lacks, by index. Empty inside a pod, which sees its own files, not the host's
    (kubelets set this variable in all containers: pkg/kubelet/envvars/envvars.go).
    """
    if not mounts or "KUBERNETES_SERVICE_HOST" in os.environ:
        return {}
    lacking = {}
    for number, mount in enumerate(mounts):
        try:
            os.stat(mount.host_path)  # noqa: PTH116  a Path isn't needed for it
        except (FileNotFoundError, NotADirectoryError):
            lacking[number] = f"{mount.host_path} isn't there on this host, and is to be mounted"
        except OSError:  # it exists, or that can't be seen
            continue
    return lacking

"""GetPreferredAllocation: by the gateway's own preference (``placement``), or by the driver's ``prefer``.

Ids that are Healthy and withheld, because claims have them (``resource.use.counted``), come after all others.

The answer is only a hint, but an error would fail the pod (callGetPreferredAllocationIfAvailable,
pkg/kubelet/cm/devicemanager). So a failure is logged, the answer is empty, and the kubelet chooses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.placement import Order, best_ids
from dpgateway.deviceplugin.values import Preference
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import DriverError, GatewayError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Device
from dpgateway.resource.ledger import Ledger

FEW = 1000
"""Number of ids whose placement takes three milliseconds. With more, up to half a second: that runs on a thread."""


class PreferredAllocation:
    """Answers for one resource."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        ledger: Ledger,
        driver: RunningDriver,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._config, self._ledger, self._driver, self._log = config, ledger, driver, log
        self._threads, self._turn = Threads(usual=1), asyncio.Lock()

    @property
    def available(self) -> bool:
        """Whether there is a preference, so that the kubelet should ask."""
        order, lanes = self._by()
        return order is not None or lanes is not None

    def _by(self) -> tuple[Order | None, Lanes | None]:
        """The order of the gateway's own preference, or else the lanes of a driver with ``prefer``."""
        config, lanes = self._config.value, self._driver.lanes
        if config.preference != "none":
            return config.preference, None
        if lanes is not None and "prefer" in lanes.abilities:
            return None, lanes
        # shares of different devices are better than shares of one
        return ("spread" if config.shares.count > 1 else None), None

    async def answer(self, request: Preference) -> tuple[str, ...]:
        """The best ids; empty leaves the choice to the kubelet. Never raises."""
        # Allocate would refuse unknown ids; and without them a request is no longer than the list.
        ours = tuple(id_ for id_ in dict.fromkeys(request.available) if self._ledger.device(id_))
        request, (order, lanes) = replace(request, available=ours), self._by()
        withheld = frozenset(filter(self._ledger.withheld, ours)).difference(request.must_include)
        if withheld:
            # without them, or with all others included if these are too few
            free = tuple([id_ for id_ in ours if id_ not in withheld])
            others = tuple(dict.fromkeys((*request.must_include, *free)))
            enough = len(others) >= request.size
            request = replace(request, available=free) if enough else replace(request, must_include=others)
        try:
            if order is not None:
                return await self._place(request, order)
            if lanes is not None:
                return await self._ask(lanes, request)
        except GatewayError as error:
            self._log.warning("no preference, so the kubelet chooses: %s", error, extra={"reason": str(error)})
        except Exception:  # the kubelet can choose by itself
            self._log.exception("a bug: no preference, so the kubelet chooses")
        # the kubelet can't tell which ids are withheld
        chosen = tuple(dict.fromkeys((*request.must_include, *request.available)))[: request.size]
        return chosen if withheld and len(chosen) == request.size else ()

    async def _place(self, request: Preference, order: Order) -> tuple[str, ...]:
        ids = (*request.available, *request.must_include)
        devices = {id_: device for id_ in ids if (device := self._ledger.device(id_))}
        choose = partial(best_ids, request, devices.get, order)
        if len(ids) <= FEW:
            return choose()
        config = self._config.value
        seconds = config.timeouts.prefer.total_seconds()
        try:
            async with asyncio.timeout(seconds), self._turn:  # one at a time
                return await self._threads.call(f"{config.name} preference", choose, seconds)
        except TimeoutError as error:
            raise GatewayError(f"choosing from {len(ids)} ids takes more than {seconds:g} s") from error

    async def _ask(self, lanes: Lanes, request: Preference) -> tuple[str, ...]:
        """Lets the driver choose devices, and takes one free share of a device each time that it is named."""
        available, must = self._devices(request.available), self._devices(request.must_include)
        if self._config.value.shares.distinct == "require":
            available = list({device.id: device for device in available}.values())
        free: dict[str, list[str]] = defaultdict(list)
        for offered in sorted(set(request.available) - set(request.must_include), reverse=True):
            if device := self._ledger.device(offered):
                free[device.id].append(offered)

        # The kubelet wants the must-include ids in the answer, so the devices named for them take no further share.
        chosen, included = list(request.must_include), Counter(device.id for device in must)
        for device in await lanes.prefer(available, must, request.size):
            if included[device.id]:
                included[device.id] -= 1
            elif free[device.id]:
                chosen.append(free[device.id].pop())
        if len(chosen) != request.size:
            raise DriverError(f"prefer returned {len(chosen)} of the available devices, expected {request.size}")
        return tuple(chosen)

    def _devices(self, ids: Iterable[str]) -> list[Device]:
        return [device for id_ in ids if (device := self._ledger.device(id_))]

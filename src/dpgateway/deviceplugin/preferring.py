"""Which ids a container should get: asks the gateway's own preference (offer/preference.py), or the driver's.

The answer is only advice: a failure is logged, and the choice is left to the kubelet. A choice from many ids is made on
a thread, one at a time, because it may take half a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.preference import Order, prefer
from dpgateway.deviceplugin.values import Preference
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import DriverError, GatewayError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Device
from dpgateway.resource.ledger import Ledger

FEW = 1000
"""Ids from which a choice is made in three milliseconds."""


class Preferring:
    """Chooses for one resource."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        ledger: Ledger,
        driver: RunningDriver,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._config, self._ledger, self._driver, self._log = config, ledger, driver, log
        self._threads, self._turn = Threads(usual=1), asyncio.Lock()

    def wanted(self) -> bool:
        """Whether the kubelet should ask."""
        return self._order() is not None or self._able() is not None

    def _able(self) -> Lanes | None:
        """The driver's calls, if it has a preference of its own."""
        calls = self._driver.calls
        return calls if calls is not None and "prefer" in calls.abilities else None

    def _order(self) -> Order | None:
        """The order of the gateway's own preference, if the resource has one. With shares it usually has one, because
        shares of different devices are better than shares of one.
        """
        config = self._config.value
        if config.preference != "none":
            return config.preference
        return "spread" if config.shares.count > 1 and self._able() is None else None

    async def preferred(self, request: Preference) -> tuple[str, ...]:
        """The best ids; none leaves the choice to the kubelet."""
        order = self._order()
        try:
            request = replace(request, available=self._ours(request.available))
            if order is not None:
                return await self._choose(request, order)
            return await self._ask_driver(request)
        except GatewayError as error:
            self._log.warning("no preference, so the kubelet chooses: %s", error, extra={"reason": str(error)})
        except Exception:  # the kubelet can choose by itself
            self._log.exception("a bug: no preference, so the kubelet chooses")
        return ()

    async def _choose(self, request: Preference, order: Order) -> tuple[str, ...]:
        ids = (*request.available, *request.must_include)
        devices = {id_: device for id_ in ids if (device := self._ledger.device(id_))}
        choose = partial(prefer, request, devices.get, order)
        if len(ids) <= FEW:
            return choose()
        seconds = self._config.value.timeouts.prefer.total_seconds()
        try:
            async with asyncio.timeout(seconds), self._turn:
                return await self._threads.call(f"{self._config.value.name} preference", choose, seconds)
        except TimeoutError as error:
            raise GatewayError(f"choosing from {len(ids)} ids takes more than {seconds:g} s") from error

    def _ours(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Without those that Allocate would refuse; so a question is no longer than the list, whoever asks."""
        return tuple(id_ for id_ in dict.fromkeys(ids) if self._ledger.device(id_))

    async def _ask_driver(self, request: Preference) -> tuple[str, ...]:
        calls = self._able()
        if calls is None:
            return ()
        free: dict[str, list[str]] = defaultdict(list)
        for offered in sorted(set(request.available) - set(request.must_include), reverse=True):
            if device := self._ledger.device(offered):
                free[device.id].append(offered)
        available, must = self._choices(request.available), self._present(request.must_include)
        chosen, included = list(request.must_include), Counter(device.id for device in must)
        for device in await calls.prefer(available, must, request.size):
            if included[device.id]:
                included[device.id] -= 1
            elif free[device.id]:
                chosen.append(free[device.id].pop())
        if len(chosen) != request.size:
            raise DriverError(f"prefer returned {len(chosen)} of the available devices, expected {request.size}")
        return tuple(chosen)

    def _choices(self, ids: Iterable[str]) -> list[Device]:
        """What the driver may choose from: a device as often as it has free shares, unless they must be distinct."""
        devices = self._present(ids)
        distinct = {device.id: device for device in devices}
        return list(distinct.values()) if self._config.value.shares.distinct == "require" else devices

    def _present(self, ids: Iterable[str]) -> list[Device]:
        return [device for id_ in ids if (device := self._ledger.device(id_))]

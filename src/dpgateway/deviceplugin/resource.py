"""The device plugin itself, in no version of the API: what a kubelet may ask of one resource, and what it gets.

The only place where an offered id becomes a driver's device, and a driver's answer becomes a container's. Deadlines and
threads are the lanes' (``dpgateway.drivers``), the words of each API ``dpgateway.deviceplugin.api``'s.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS, Api, Call
from dpgateway.deviceplugin.offer.allocations import Additions, add
from dpgateway.deviceplugin.offer.ledger import Refusal
from dpgateway.deviceplugin.offer.offering import Offering
from dpgateway.deviceplugin.offer.preference import Order, prefer
from dpgateway.errors import DriverError, GatewayError, RequestError
from dpgateway.model import Allocation, Device, Grant, Options, Preference


class Calls(Protocol):
    """A driver's methods, each with its deadline; they raise the errors of ``dpgateway.errors`` only."""

    @property
    def abilities(self) -> frozenset[str]: ...

    async def allocate(self, devices: Sequence[Device]) -> Allocation: ...

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int
    ) -> tuple[Device, ...]: ...

    async def prepare(self, devices: Sequence[Device], *, once: bool = True) -> None: ...

    def release(self, devices: Sequence[Device]) -> None: ...


class Resource:
    """One extended resource."""

    def __init__(
        self, config: ResourceConfig, offering: Offering, log: logging.LoggerAdapter[logging.Logger], first_api: Api
    ) -> None:
        self.name = config.name
        self.offering = offering
        self.api = first_api
        """The dialect that was offered to the kubelet last: 1.8 and 1.9 share a path, but not the answer's format."""
        self.calls: Calls | None = None
        """None while there is no driver to ask."""
        self._config = config
        self._log = log
        self._extra = Additions(config.env, config.annotations, config.mounts)
        self._told: set[str] = set()

    def options(self) -> Options:
        """What the kubelet should ask for. Without a driver nothing can say that a device needs no preparation."""
        abilities = self.calls.abilities if self.calls else {"prepare"}
        return Options(prepare="prepare" in abilities, prefer=bool(self._order()) or "prefer" in abilities)

    # GetPreferredAllocation

    async def prefer(self, requests: Iterable[Preference]) -> tuple[tuple[str, ...], ...]:
        """The best ids for each container. Never an error: an empty answer leaves the choice to the kubelet."""
        return tuple([await self._preferred(request) for request in requests])

    def _order(self) -> Order | None:
        """Of the gateway's own preference, if it has one: shares of different devices are better than of one."""
        if self._config.preference != "none":
            return self._config.preference
        own = self.calls is not None and "prefer" in self.calls.abilities
        return "spread" if self._config.shares.count > 1 and not own else None

    async def _preferred(self, request: Preference) -> tuple[str, ...]:
        order = self._order()
        try:
            if order is not None:
                return prefer(request, self.offering.device, order)
            return await self._ask_driver(request)
        except GatewayError as error:
            self._log.warning("no preference, so the kubelet chooses: %s", error)
        except Exception:  # it's no more than a wish
            self._log.exception("a bug: no preference, so the kubelet chooses")
        return ()

    async def _ask_driver(self, request: Preference) -> tuple[str, ...]:
        if self.calls is None or "prefer" not in self.calls.abilities:
            return ()
        free: dict[str, list[str]] = defaultdict(list)
        for offered in sorted(set(request.available) - set(request.must_include), reverse=True):
            if device := self.offering.device(offered):
                free[device.id].append(offered)
        available, must = self._choices(request.available), self._present(request.must_include)
        chosen, included = list(request.must_include), Counter(device.id for device in must)
        for device in await self.calls.prefer(available, must, request.size):
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
        return list(distinct.values()) if self._config.shares.distinct == "require" else devices

    def _present(self, ids: Iterable[str]) -> list[Device]:
        return [device for id_ in ids if (device := self.offering.device(id_))]

    # Allocate

    async def allocate(self, requests: Iterable[Sequence[str]], api: Api) -> tuple[Grant, ...]:
        """One grant per container, in the order of the requests; prepared too, if ``api`` has no call for that."""
        return tuple([await self._grant(tuple(dict.fromkeys(ids)), api) for ids in requests])

    async def _grant(self, ids: tuple[str, ...], api: Api) -> Grant:
        if not ids:
            return Grant((), Allocation())
        calls = self._driver()
        devices = self._devices(ids)
        allocation = None
        try:
            with self.offering.allocating(ids):
                allocation = await calls.allocate(devices)
                if "prepare" in calls.abilities and not api.can(Call.PREPARE):
                    await calls.prepare(devices, once=False)
                self._devices(ids)  # a device that died meanwhile isn't given away
                return Grant(ids, self._complete(allocation, api))
        except BaseException:  # also the kubelet's end, in the middle of it
            if allocation is not None:  # if preparing goes on, this comes after it, unless the kubelet tries again
                calls.release(self.offering.unheld(devices))
            raise

    def _devices(self, ids: tuple[str, ...]) -> tuple[Device, ...]:
        """The devices of ``ids``, each once."""
        found = self.offering.resolve(ids)
        if isinstance(found, Refusal):
            raise RequestError(f"resource {self.name}: device {found.id} is {found.reason}")
        devices = {device.id: device for device in found.values()}
        if len(devices) < len(ids) and self._config.shares.distinct == "require":
            raise RequestError(
                f"resource {self.name}: {', '.join(ids)} are shares of {len(devices)} devices, and "
                "'shares: {distinct: require}' wants a device for each; ask for fewer, or let the kubelet (1.19 or "
                "later) follow the preference"
            )
        return tuple(devices.values())

    def _complete(self, allocation: Allocation, api: Api) -> Allocation:
        complete, replaced = add(allocation, self._extra)
        for what in replaced:
            self._tell(logging.INFO, f"the configuration replaces the driver's {what}")
        for field in api.losses:
            if getattr(complete, field):
                self._tell(logging.WARNING, f"the kubelet's API {api.name} has no {field}: containers don't get them")
        return complete

    def _tell(self, level: int, message: str) -> None:
        """Once per resource: it is the same for every allocation."""
        if message not in self._told:
            self._told.add(message)
            self._log.log(level, message)

    def _driver(self) -> Calls:
        if self.calls is None:
            raise RequestError(f"resource {self.name}: its driver {self._config.driver} isn't running; see the log")
        return self.calls

    # PreStartContainer

    async def prepare(self, ids: Iterable[str]) -> None:
        """Makes the devices of a container ready. An Unhealthy one may be what preparing mends; the driver decides."""
        calls = self._driver()
        devices: dict[str, Device] = {}
        for offered in ids:
            device = self.offering.device(offered)
            if device is None:
                found = self.offering.resolve([offered])
                reason = found.reason if isinstance(found, Refusal) else "unknown"
                raise RequestError(f"resource {self.name}: device {offered} is {reason}")
            devices[device.id] = device
        if "prepare" in calls.abilities:
            await calls.prepare(tuple(devices.values()))


def only(names: Iterable[str], apis: Sequence[Api] = APIS) -> tuple[Api, ...]:
    """The versions of ``apis`` with these names, in the order of ``apis``."""
    wanted = set(names)
    return tuple(api for api in apis if api.name in wanted)

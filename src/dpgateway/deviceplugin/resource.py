"""The device plugin itself, in no version of the API: what a kubelet may ask of one resource, and what it gets.

Here the ids of a request become a driver's devices, and the driver's allocation becomes a container's. It also notes
what is in flight. Deadlines and threads are left to ``dpgateway.drivers``, the messages of each API to
``dpgateway.deviceplugin.api``, and what is free again to ``dpgateway.resource.freeing``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS, Api, Call
from dpgateway.deviceplugin.cdi import CdiDelivery, Recipient
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.preferred import PreferredAllocation
from dpgateway.deviceplugin.repeating import Repeating
from dpgateway.deviceplugin.values import Grant, Options, Preference
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import CdiError, DriverError, RequestError
from dpgateway.kit.observable import Observable
from dpgateway.model import Allocation, Device
from dpgateway.resource.additions import complete
from dpgateway.resource.freeing import Releases
from dpgateway.resource.front import Behind
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.ledger import Refusal
from dpgateway.resource.use import hardware, shared


class _Over(NamedTuple):
    """What an Allocate tells of the containers that had something before."""

    again: Collection[str]
    """The ids of those that may be starting again, and take nobody's share."""
    given_up: Collection[str] = ()
    """The ids of those that have ended, because the kubelet gives something of theirs away."""


class Resource:
    """One extended resource."""

    def __init__(  # noqa: PLR0913  one for each part
        self,
        config: Observable[ResourceConfig],
        inventory: Inventory,
        driver: RunningDriver,
        cdi: CdiDelivery,
        log: logging.LoggerAdapter[logging.Logger],
        *,
        holdings: ResourceHoldings,
    ) -> None:
        """``config`` changes in place."""
        self.name = config.value.name
        self.inventory = inventory
        self.api: Api = APIS[0]
        """The API of the last Register: 1.8 and 1.9 share a path, but not the format of Allocate's answer."""
        self.agent = ""
        """How the kubelet that opened the last stream calls itself."""
        self._ledger, self._usage, self.driver = inventory.ledger, inventory.usage, driver
        self._config, self._cdi = config, cdi
        self._log, self._clock = log, inventory.clock
        self.releases = Releases(inventory, driver, log)
        self._preferred = PreferredAllocation(config, inventory.ledger, driver, log)
        self.repeating = Repeating(holdings, inventory, driver, cdi, log, complete=self._complete, api=lambda: self.api)
        self._logged: set[tuple[int, str]] = set()
        """By the version of the configuration."""

    def options(self) -> Options:
        """What the kubelet should ask for: always before a start, because what it repeats may be outdated."""
        return Options(prepare=True, prefer=self._preferred.available)

    def patience(self, call: Call, api: Api) -> float:
        """Seconds within which the kubelet is to have an answer."""
        timeouts = self._config.value.timeouts
        if call is Call.PREPARE:
            return timeouts.prepare.total_seconds()
        if call is Call.ALLOCATE:
            allocate = timeouts.allocate.total_seconds()
            return allocate if api.can(Call.PREPARE) else allocate + timeouts.prepare.total_seconds()
        return timeouts.prefer.total_seconds()

    async def prefer(self, requests: Iterable[Preference]) -> tuple[tuple[str, ...], ...]:
        """The best ids for each container. Never an error: an empty answer leaves the choice to the kubelet."""
        return tuple([await self._preferred.answer(request) for request in requests])

    @property
    def idle(self) -> bool:
        """Whether the driver prepares and releases nothing."""
        calls = self.driver.calls
        return calls is None or calls.idle

    def speak(self, api: Api) -> None:
        """From now on the kubelet is asked, and asks, in this version."""
        self.api = api

    def listed_for(self, agent: str) -> None:
        """A kubelet that calls itself so has opened a stream."""
        self.agent = agent

    def rest(self) -> None:
        """From now on another gateway may serve the resource: the driver isn't told what is free, and no answer that
        was given is compared with what its driver would give now.
        """
        self.releases.rest()
        self.repeating.rest()

    def go_on(self) -> None:
        """This gateway serves it."""
        self.releases.go_on()
        self.repeating.go_on()
        self.releases.tell()

    # Allocate

    async def allocate(self, requests: Iterable[Sequence[str]], api: Api) -> tuple[Grant, ...]:
        """One grant per container, in the order of the requests; prepared too, if ``api`` has no call for that."""
        grants: list[Grant] = []
        for ids in requests:
            grants.append(await self._grant(tuple(dict.fromkeys(ids)), api, grants))
        return tuple(grants)

    async def _grant(self, ids: tuple[str, ...], api: Api, others: Sequence[Grant]) -> Grant:
        """``others``: those of the same answer."""
        if not ids:
            return Grant((), Allocation())
        calls = self._calls()
        self.inventory.look()
        over = _Over(self._usage.value.started) if api.repeats else _Over((), self.inventory.given_up(ids))
        found = self._found(ids, over)
        devices = tuple({device.id: device for device in found.values()}.values())
        began = self._clock.monotonic()
        with self._allocating(ids) as behind:
            allocation = await calls.allocate(devices, lambda: self.releases.allocated_late(ids, behind, found))
            self.releases.owe(ids, behind, found)
            allocation = await self._with_cdi(self._complete(allocation, len(ids)), ids, api)
            if "prepare" in calls.abilities and not api.can(Call.PREPARE):
                await self._prepare(calls, ids, devices, once=False)
            self._look_again(ids, behind, over)
            grant = Grant(ids, allocation)
            self._check_size([*others, grant], api)
        self._tell_later("allocated %s to a container, in %s", ids, devices, began)
        return grant

    @contextmanager
    def _allocating(self, ids: tuple[str, ...]) -> Iterator[dict[str, frozenset[str]]]:
        """The ids are held while their Allocate is in flight, and until the checkpoint tells what came of it. Within,
        what is behind them is known.

        After a failure, also if the kubelet ended, the driver is told that they are free. A prepare that still runs
        comes first, and until then their hardware is nobody else's.
        """
        usage = self._usage
        found = {id_: device for id_ in ids if (device := self._ledger.device(id_)) is not None}
        behind = {id_: hardware(device) for id_, device in found.items()}
        devices = {id_: device.id for id_, device in found.items()}
        usage.began(ids, behind)
        self.inventory.use()
        try:
            yield behind
        except BaseException:
            usage.failed(ids)
            self.inventory.use()
            self.releases.tell()
            raise
        usage.gave(ids, self._clock.monotonic(), behind, int(time.time()), devices)

    def _found(self, ids: tuple[str, ...], over: _Over) -> Mapping[str, Device]:
        """The device of each of ``ids``."""
        found = self._ledger.resolve(ids, self._clock.monotonic(), over.again)
        if isinstance(found, Refusal):
            raise RequestError(f"resource {self.name}: device {found.id} is {found.reason}")
        if (full := self.inventory.crowded([id_ for id_ in ids if id_ not in over.again], over.given_up)) is not None:
            text = f"device {full[0]} can't be given away: containers have all shares of it already, as {full[1]}"
            raise RequestError(f"resource {self.name}: {text}")
        devices = {device.id: device for device in found.values()}
        if len(devices) < len(ids) and self._config.value.shares.distinct == "require":
            raise RequestError(
                f"resource {self.name}: {', '.join(ids)} are shares of {len(devices)} devices, and "
                "'shares: {distinct: require}' wants a device for each; ask for fewer, or let the kubelet (1.19 or "
                "later) follow the preference"
            )
        if len(devices) > 1 and (both := shared(devices.values())) is not None:
            names = " and ".join(device.id for device in both)
            raise RequestError(
                f"resource {self.name}: devices {names} are the same hardware, so a container can't get both"
            )
        return found

    def _look_again(self, ids: tuple[str, ...], behind: dict[str, frozenset[str]], over: _Over) -> None:
        """A device that died meanwhile isn't given away, nor one whose driver gave what its name doesn't mean now."""
        self._found(ids, over)
        for id_, names in behind.items():
            device = self._ledger.device(id_)
            now = hardware(device) if device is not None else frozenset()
            if not names <= now:
                raise RequestError(
                    f"resource {self.name}: device {id_} became other hardware while it was given away: "
                    f"{', '.join(sorted(now))} instead of {', '.join(sorted(names))}"
                )
            behind[id_] = now

    def _complete(self, allocation: Allocation, granted: int) -> Allocation:
        config = self._config.value
        if not (config.env or config.annotations or config.mounts or config.shares.env):
            return allocation
        try:
            completed, replaced = complete(allocation, config, granted)
        except ValueError as error:
            raise RequestError(f"resource {self.name}: {error}, at {config.where}") from error
        for what in replaced:
            self._log_once(logging.INFO, f"the configuration replaces the driver's {what}")
        return completed

    async def _with_cdi(self, allocation: Allocation, ids: tuple[str, ...], api: Api) -> Allocation:
        """The allocation as this kubelet and its runtime can take it."""
        if allocation.cdi_devices or self._config.value.cdi == "always":
            to = Recipient(self.name, ids, self._config.value.cdi, api.passes_cdi(self.agent))
            try:
                allocation, warning = await self._cdi.deliver(allocation, to)
            except CdiError as error:
                raise RequestError(f"resource {self.name}: {error}") from error
            if warning:
                self._log_once(logging.WARNING, warning)
        for field in api.losses:
            if getattr(allocation, field):
                self._log_once(
                    logging.WARNING, f"the kubelet's API {api.name} has no {field}: containers don't get them"
                )
        return allocation

    def _check_size(self, grants: Sequence[Grant], api: Api) -> None:
        if failure := api.too_large(tuple(grants)):
            config = self._config.value
            raise RequestError(
                f"resource {self.name}: {failure}; let the driver {config.driver}, or the configuration at "
                f"{config.where}, give a container less env, annotations, mounts, device nodes or CDI devices: "
                f"device {', '.join(grants[-1].ids)}"
            )

    def _log_once(self, level: int, message: str) -> None:
        """Logs the message once per configuration, because it is the same for every allocation."""
        if (key := (self._config.version, message)) not in self._logged:
            self._logged.add(key)
            self._log.log(level, message)

    def _calls(self) -> Lanes:
        if self.driver.calls is None:
            raise RequestError(
                f"resource {self.name}: its driver {self._config.value.driver} isn't running; see the log"
            )
        return self.driver.calls

    # PreStartContainer

    async def prepare(self, ids: Sequence[str]) -> None:
        """Makes a container's devices ready. Preparing may be what repairs an Unhealthy one; the driver decides."""
        calls = self._calls()
        devices: dict[str, Device] = {}
        behind: dict[str, frozenset[str]] = {}
        named: dict[str, str] = {}
        for offered in ids:
            device = self._ledger.device(offered)
            if device is None:
                found = self._ledger.resolve([offered], self._clock.monotonic())
                reason = found.reason if isinstance(found, Refusal) else "unknown"
                raise RequestError(f"resource {self.name}: device {offered} is {reason}")
            devices[device.id], behind[offered], named[offered] = device, hardware(device), device.id
        own, prepares = tuple(devices.values()), "prepare" in calls.abilities

        # A driver that can't say what it gives before it has prepared, because a board is faulty, is asked afterwards.
        checked = True
        try:
            await self.repeating.check(ids, own, calls)
        except DriverError:
            if not prepares:
                raise
            checked = False

        # A kubelet asks before it makes a container, so what the container had before runs no more. What prepares one
        # device may ruin another one that is the same hardware.
        if reasons := self.inventory.elsewhere(own):
            self._note_prepared({offered: frozenset([name]) for offered, name in named.items()})
            id_, reason = next(iter(reasons.items()))
            raise RequestError(f"resource {self.name}: device {id_} can't be prepared: {reason}")
        self._note_prepared(behind)
        if prepares:
            await self._prepare(calls, tuple(ids), own, once=True)
        if not checked:
            await self.repeating.check(ids, own, calls)

    def _note_prepared(self, behind: Behind) -> None:
        """A container starts again with what is behind its ids now, or doesn't, and has nothing but its ids."""
        if not self._usage.value.differs(behind):
            return
        if reason := self.inventory.unsure:
            what = f"{', '.join(behind)} can't be prepared: they became other hardware, and {reason}"
            raise RequestError(f"resource {self.name}: {what}")
        self._usage.prepared(behind)
        self.inventory.use()

    async def _prepare(self, calls: Lanes, ids: Sequence[str], devices: Sequence[Device], *, once: bool) -> None:
        began = self._clock.monotonic()
        await calls.prepare(devices, once=once)
        self._tell_later("prepared %s for a container, in %s", ids, devices, began)

    # what the log says of each container

    def _tell_later(self, text: str, ids: Sequence[str], devices: Sequence[Device], began: float) -> None:
        """Once gRPC sends the answer, because no container should wait for the log."""
        seconds = self._clock.monotonic() - began
        asyncio.get_running_loop().call_soon(self._tell, text, ids, devices, seconds)

    def _tell(self, text: str, ids: Sequence[str], devices: Sequence[Device], seconds: float) -> None:
        number = f"{len(ids)} device{'s' if len(ids) != 1 else ''}"
        took = f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
        names = [device.id for device in devices]
        fields = {"devices": names, "ids": None if names == list(ids) else list(ids), "count": len(ids)}
        self._log.info(text, number, took, extra={**fields, "api": self.api.name, "seconds": round(seconds, 6)})

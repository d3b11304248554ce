"""Gives a resource's devices to containers, and makes them ready before a start: one function for each.

A grant goes through these steps, and each of them may refuse it::

    begin       the ids' devices are present, Healthy and nobody else's; from now on their hardware is in use
    driver      allocate(), then it is owed to the driver that it hears when they are free
    additions   what the configuration gives besides
    front       its own part: how its kubelet can take the allocation
    prepare     where the kubelet doesn't ask for that before the start
    again       the devices are still what they were when it began
    commit      a container has them

Whatever fails after *begin*, also a kubelet that stops waiting, undoes it: the ids are as before, and the driver is
told that what it gave is free, once a prepare that still runs has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpgateway.config import ResourceConfig
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import DriverError, RequestError
from dpgateway.kit.observable import Observable
from dpgateway.model import Allocation, Device
from dpgateway.resource.additions import complete
from dpgateway.resource.freeing import CONCERNED, Releases
from dpgateway.resource.front import Behind
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.ledger import Refusal
from dpgateway.resource.use import hardware, shared

Check = Callable[[Sequence[str], Sequence[Device], Lanes], Awaitable[None]]
"""Refuses the start of a container with these ids, whose devices they are."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a front grants."""

    api: str
    """What it speaks, for the log."""
    deliver: Callable[[Allocation], Awaitable[Allocation]]
    """Makes an allocation what its kubelet can take, or refuses it with RequestError."""
    repeats: bool = False
    """Whether its kubelet asks again, with the same ids, whenever a container starts again."""
    prepares: bool = False
    """Whether its kubelet asks for no preparation before a start, so that it belongs to the grant."""


class Granting:
    """Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        inventory: Inventory,
        driver: RunningDriver,
        releases: Releases,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``config`` changes in place."""
        self.inventory, self.driver, self.releases, self.config, self.log = inventory, driver, releases, config, log
        self._ledger, self._usage, self._clock = inventory.ledger, inventory.usage, inventory.clock
        self._logged: set[tuple[int, str]] = set()
        """By the version of the configuration."""

    async def grant(self, ids: tuple[str, ...], terms: Terms) -> Allocation:
        """What a container gets with these ids, at least one. Raises GatewayError."""
        calls = self._calls()
        self.inventory.look()
        again = self._usage.value.started if terms.repeats else frozenset[str]()
        given_up = frozenset[str]() if terms.repeats else self.inventory.given_up(ids)
        found = self._found(ids, again, given_up)
        devices = _once(found.values())
        names = {id_: device.id for id_, device in found.items()}
        behind: Behind = {id_: hardware(device) for id_, device in found.items()}

        # From here on nobody else is given this hardware.
        began = self._clock.monotonic()
        self._usage.began(ids, behind)
        self.inventory.use()
        try:
            allocation = await calls.allocate(devices, lambda: self.releases.allocated_late(ids, behind, found))
            if not CONCERNED.isdisjoint(calls.abilities):
                self.releases.owe(ids, behind, found)
            allocation = await terms.deliver(self.complete(allocation, len(ids)))
            if terms.prepares and "prepare" in calls.abilities:
                await self._prepare(calls, ids, devices, terms.api, once=False)

            # A device that died meanwhile isn't given away, nor one whose driver gave what its name doesn't mean now.
            behind = self._unchanged(self._found(ids, again, given_up), behind)
        except BaseException:
            self._usage.failed(ids)
            self.inventory.use()
            self.releases.tell()
            raise
        self._usage.gave(ids, self._clock.monotonic(), behind, int(time.time()), names)
        self._tell_later("allocated %s to a container, in %s", ids, devices, terms.api, began)
        return allocation

    def _found(self, ids: tuple[str, ...], again: Collection[str], given_up: Collection[str]) -> Mapping[str, Device]:
        """The device of each id. ``again``: the ids of containers that may be starting again, and take nobody's share.
        ``given_up``: those of containers that have ended, because the kubelet gives something of theirs away.
        """
        found = self._ledger.resolve(ids, self._clock.monotonic(), again)
        if isinstance(found, Refusal):
            raise self._refused(f"device {found.id} is {found.reason}")
        if (full := self.inventory.crowded([id_ for id_ in ids if id_ not in again], given_up)) is not None:
            id_, others = full
            text = f"device {id_} can't be given away: containers have all shares of it already, as {others}"
            raise self._refused(text)
        devices = _once(found.values())
        if len(devices) < len(ids) and self.config.value.shares.distinct == "require":
            raise self._refused(
                f"{', '.join(ids)} are shares of {len(devices)} devices, and 'shares: {{distinct: require}}' wants a "
                "device for each; ask for fewer, or let the kubelet (1.19 or later) follow the preference"
            )
        if len(devices) > 1 and (both := shared(devices)) is not None:
            names = " and ".join(device.id for device in both)
            raise self._refused(f"devices {names} are the same hardware, so a container can't get both")
        return found

    def _unchanged(self, found: Mapping[str, Device], behind: Behind) -> Behind:
        """The hardware behind the ids now, which has all that was ``behind`` them."""
        now = {id_: hardware(device) for id_, device in found.items()}
        for id_, names in behind.items():
            if not names <= now[id_]:
                became = f"{', '.join(sorted(now[id_]))} instead of {', '.join(sorted(names))}"
                raise self._refused(f"device {id_} became other hardware while it was given away: {became}")
        return now

    def complete(self, allocation: Allocation, granted: int) -> Allocation:
        """The driver's allocation for so many ids, with what the configuration adds."""
        config = self.config.value
        if not (config.env or config.annotations or config.mounts or config.shares.env):
            return allocation
        try:
            completed, replaced = complete(allocation, config, granted)
        except ValueError as error:
            raise self._refused(f"{error}, at {config.where}") from error
        for what in replaced:
            self.log_once(logging.INFO, f"the configuration replaces the driver's {what}")
        return completed

    async def prepare(self, ids: Sequence[str], check: Check, api: str) -> None:
        """Makes a container's devices ready. Preparing may be what repairs an Unhealthy one; the driver decides.

        ``check``: the front's own, of what the container was given. Raises GatewayError.
        """
        calls, found = self._calls(), dict[str, Device]()
        for offered in ids:
            device = self._ledger.device(offered)
            if device is None:
                refusal = self._ledger.resolve([offered], self._clock.monotonic())
                reason = refusal.reason if isinstance(refusal, Refusal) else "unknown"
                raise self._refused(f"device {offered} is {reason}")
            found[offered] = device
        own, prepares = _once(found.values()), "prepare" in calls.abilities

        # A driver that can't say what it gives before it has prepared, because a board is faulty, is asked afterwards.
        checked = True
        try:
            await check(ids, own, calls)
        except DriverError:
            if not prepares:
                raise
            checked = False

        # A kubelet asks before it makes a container, so what the container had before runs no more. What prepares one
        # device may ruin another one that is the same hardware.
        if reasons := self.inventory.elsewhere(own):
            self._starts({offered: frozenset([device.id]) for offered, device in found.items()})
            id_, reason = next(iter(reasons.items()))
            raise self._refused(f"device {id_} can't be prepared: {reason}")
        self._starts({offered: hardware(device) for offered, device in found.items()})
        if prepares:
            await self._prepare(calls, ids, own, api, once=True)
        if not checked:
            await check(ids, own, calls)

    def _starts(self, behind: Behind) -> None:
        """A container starts with what is behind its ids now, or doesn't, and has nothing else."""
        if self._usage.value.differs(behind):
            if reason := self.inventory.unsure:
                what = f"{', '.join(behind)} can't be prepared: they became other hardware, and {reason}"
                raise self._refused(what)
            self._usage.prepared(behind)
            self.inventory.use()

    async def _prepare(
        self, calls: Lanes, ids: Sequence[str], devices: Sequence[Device], api: str, *, once: bool
    ) -> None:
        began = self._clock.monotonic()
        await calls.prepare(devices, once=once)
        self._tell_later("prepared %s for a container, in %s", ids, devices, api, began)

    def _calls(self) -> Lanes:
        if self.driver.calls is None:
            raise self._refused(f"its driver {self.config.value.driver} isn't running; see the log")
        return self.driver.calls

    def _refused(self, why: str) -> RequestError:
        return RequestError(f"resource {self.inventory.name}: {why}")

    # the log

    def log_once(self, level: int, message: str) -> None:
        """Logs the message once per configuration, because it is the same for every allocation."""
        if (key := (self.config.version, message)) not in self._logged:
            self._logged.add(key)
            self.log.log(level, message)

    def _tell_later(self, text: str, ids: Sequence[str], devices: Sequence[Device], api: str, began: float) -> None:
        """Once the front has sent its answer, because no container should wait for the log."""
        seconds, names = self._clock.monotonic() - began, [device.id for device in devices]
        number = f"{len(ids)} device{'s' if len(ids) != 1 else ''}"
        took = f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
        which = {"devices": names, "ids": None if names == list(ids) else list(ids), "count": len(ids)}
        fields = {**which, "api": api, "seconds": round(seconds, 6)}
        asyncio.get_running_loop().call_soon(lambda: self.log.info(text, number, took, extra=fields))


def _once(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Each device once, whatever its shares."""
    return tuple({device.id: device for device in devices}.values())

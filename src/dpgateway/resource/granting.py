"""Grants a resource's devices to containers, and prepares them before a start.

Theory of operation. A grant is a transaction of these steps, each of which may refuse it::

    wait        for claims that are about to end, whose devices are on the list as Healthy meanwhile
    begin       the devices are present, Healthy and unused; from now on their hardware is in use
    driver      allocate(); from now on a release is owed to the driver
    additions   the configuration's env, annotations and mounts
    front       translates the allocation for its kubelet
    prepare     for a kubelet that doesn't ask for it before the start
    recheck     the devices are still Healthy and the same hardware
    commit      a container has them

A failure after *begin*, or a kubelet that stops waiting, rolls back: the ids are as before, and owed devices are
released, once a prepare still running has ended. An allocate() that goes on without its grant has the hardware in use
until it returns; what it gave is owed then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dpgateway.config import ResourceConfig
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import DriverError, RequestError
from dpgateway.kit.observable import Observable
from dpgateway.model import Allocation, Device, hardware
from dpgateway.resource.additions import complete
from dpgateway.resource.freeing import CONCERNED, Releases
from dpgateway.resource.front import Behind
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.ledger import Refusal
from dpgateway.resource.use import shared

CLAIMS_END = 5.0
"""Seconds that a grant waits for a device of a claim. The next pod of one that was deleted by force came 2 s before the
claim's end (seen with 1.37)."""
IN_VAIN = 60.0
"""Seconds after such a wait in vain in which no grant waits: a kubelet admits one pod after the other, and ends none
meanwhile. Ten waits in a row held a 1.34 up for 50 s, which would have ended the claims."""

Check = Callable[[Sequence[str], Sequence[Device], Lanes], Awaitable[None]]
"""Raises to refuse the start of a container with these ids and devices."""

Deliver = Callable[[Allocation], Awaitable[Allocation]]
"""Translates an allocation for the kubelet, or refuses it with RequestError or CdiError."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The properties of a front's API that concern grants."""

    api: str
    """The API's name, for the log."""
    deliver: Deliver
    repeats: bool = False
    """Whether ids that the front has in use already are no obstacle: a 1.8 kubelet allocates the same ids again at each
    start of a container (GetResources), and a claim's record has its ids before their grant."""
    prepares: bool = False
    """Whether the grant includes the preparation, because the kubelet doesn't ask for it before a start."""
    options: object = None
    """A claim's own options, of the driver's type; None: the resource's."""


class Granting:
    """Grants of one resource. Used from the event loop."""

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
        self._exclusion = inventory.exclusion
        self._in_vain = float("-inf")
        """When a grant last waited in vain for the end of a claim, in seconds of the clock."""
        self._over = ""
        """Why nothing is granted any more, not even by grants under way; empty until :meth:`end`."""
        self._logged: set[tuple[int, str]] = set()
        """The messages that :meth:`log_once` has logged, with the version of the configuration."""

    async def grant(self, ids: tuple[str, ...], terms: Terms) -> Allocation:
        """Grants these ids, at least one, to a container. Raises GatewayError; then nothing is granted."""
        lanes = self._lanes(terms.options)
        self._exclusion.exclude()  # the pool may have changed since the last list
        if not self._ledger.counted.isdisjoint(ids):
            await self._claims_end(ids)

        # Which ids of this front are no obstacle: those of a container that may be starting again, or that has ended.
        before, restarting, given_up = self._usage.value, set[str](), frozenset[str]()
        if terms.repeats:
            restarting.update(before.living, before.granted)
        elif self._exclusion.may_crowd:
            given_up = before.given_up(ids)
        found = self._found(ids, restarting, given_up)
        devices, names, behind = _once(found.values()), dict[str, str](), dict[str, frozenset[str]]()
        for id_, device in found.items():
            names[id_], behind[id_] = device.id, hardware(device)

        # From here on this hardware is refused to all others. No await since the check: the two are one step.
        began = self._clock.monotonic()
        self._usage.set(self._usage.value.began(ids, behind))
        self._exclusion.uses_changed()
        try:
            # Owed to this driver, even if another one runs by then.
            concerned = not CONCERNED.isdisjoint(lanes.abilities)
            owe = partial(self.releases.owe, ids, behind, found, before.driver)
            abandoned = partial(self.releases.abandoned, behind, found, owe if concerned else None)
            allocation = await lanes.allocate(devices, abandoned, terms.options)
            if concerned:
                owe()
            allocation = await terms.deliver(self.complete(allocation, len(ids)))
            if terms.prepares and "prepare" in lanes.abilities:
                prepares = self._clock.monotonic()
                await lanes.prepare(devices, once=False, options=terms.options)
                self._log_later("prepared %s for a container, in %s", ids, devices, terms.api, prepares)

            # A device may have died meanwhile, or its id may mean other hardware than the driver gave.
            now = dict[str, frozenset[str]]()
            for id_, device in self._found(ids, restarting, given_up).items():
                now[id_] = hardware(device)
                if not behind[id_] <= now[id_]:
                    became = f"{', '.join(sorted(now[id_]))} instead of {', '.join(sorted(behind[id_]))}"
                    raise self._refused(f"device {id_} became other hardware while it was given away: {became}")
        except BaseException:
            # For a BaseException, too: a kubelet that stops waiting cancels the call.
            self._usage.set(self._usage.value.failed(ids))
            self._exclusion.uses_changed()
            self.releases.release_due()
            raise
        given = self._usage.value.gave(ids, self._clock.monotonic(), now, int(self._clock.time()), names)
        self._usage.set(given)
        self._log_later("allocated %s to a container, in %s", ids, devices, terms.api, began)
        return allocation

    def end(self, why: str) -> None:
        """Another gateway grants the resource from now on, and won't hear of what this one does: grants fail."""
        self._over = why

    async def _claims_end(self, ids: tuple[str, ...]) -> None:
        """Waits for ids whose claims are about to end. The scheduler stops counting a pod before its claim ends, so the
        kubelet may already allocate the id.
        """
        if self._clock.monotonic() < self._in_vain + IN_VAIN:
            return
        # The driver has all of the timeout afterwards.
        within = self.config.value.timeouts.allocate.total_seconds() / 2
        try:
            async with asyncio.timeout(min(CLAIMS_END, within)):
                while any(map(self._ledger.withheld, ids)):
                    await self._exclusion.wait(self._exclusion.version)
        except TimeoutError:
            self._in_vain = self._clock.monotonic()

    async def repeat(self, behind: Behind, terms: Terms) -> Allocation:
        """Repeats the allocation of ids that another front granted before the node's boot, each with its hardware. That
        front has them in use, and releases them: nothing is granted here. Raises GatewayError.
        """
        lanes, ids = self._lanes(terms.options), tuple(behind)
        devices = _once(self._same(behind).values())
        began = self._clock.monotonic()
        # A late answer is dropped: the other front has the devices all the time, so nothing is to be undone.
        allocation = await lanes.allocate(devices, None, terms.options)
        allocation = await terms.deliver(self.complete(allocation, len(ids)))
        if "prepare" in lanes.abilities:
            await lanes.prepare(devices, once=False, options=terms.options)
        self._same(behind)
        self._log_later("allocated %s to a container again, in %s", ids, devices, terms.api, began)
        return allocation

    def _same(self, behind: Behind) -> Mapping[str, Device]:
        """The present, Healthy device of each id. Raises RequestError if its hardware differs from what was granted:
        only that is kept from others.
        """
        found = {}
        for id_, names in behind.items():
            if (device := self._ledger.device(id_)) is None:
                raise self._refused(f"device {id_} isn't there any more")
            if not device.health.ok:
                raise self._refused(f"device {id_} is unhealthy: {device.health.reason}")
            if (now := hardware(device)) != names:
                became = f"{', '.join(sorted(now))} instead of {', '.join(sorted(names)) or 'what is known'}"
                raise self._refused(f"device {id_} became other hardware since it was given away: {became}")
            found[id_] = device
        return found

    def _found(
        self, ids: tuple[str, ...], restarting: Collection[str], given_up: Collection[str]
    ) -> Mapping[str, Device]:
        """The device of each id; raises RequestError if one can't be granted. ``restarting``: ids of containers that
        may be starting again, which take no other container's share. ``given_up``: ids of containers that must have
        ended, because the kubelet allocates one of theirs.
        """
        # Each refusal names its reason, because people read it in the pod's events.
        if self._over:
            raise self._refused(self._over)
        found = self._ledger.resolve(ids, self._clock.monotonic(), restarting)
        if isinstance(found, Refusal):
            raise self._refused(f"device {found.id} is {found.reason}")
        full = None
        if self._exclusion.may_crowd:
            full = self._exclusion.no_share_left([id_ for id_ in ids if id_ not in restarting], given_up)
        if full is not None:
            id_, others = full
            text = f"device {id_} can't be given away: containers have all shares of it already, as {others}"
            raise self._refused(text)
        devices = _once(found.values())

        # The kubelet chooses ids without knowing their devices, so only a refusal can enforce this.
        if len(devices) < len(ids) and self.config.value.shares.distinct == "require":
            raise self._refused(
                f"{', '.join(ids)} are shares of {len(devices)} devices, and 'shares: {{distinct: require}}' wants a "
                "device for each; ask for fewer, or let the kubelet (1.19 or later) follow the preference"
            )

        # A list can't say that two Healthy devices exclude each other.
        if len(devices) > 1 and (both := shared(devices)) is not None:
            names = " and ".join(device.id for device in both)
            raise self._refused(f"devices {names} are the same hardware, so a container can't get both")
        return found

    def complete(self, allocation: Allocation, granted: int) -> Allocation:
        """The driver's allocation of ``granted`` ids, with the configuration's additions."""
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
        """Prepares a container's devices. Unhealthy devices pass: preparing may repair them, so the driver decides.

        ``check``: the front's check of the container's earlier allocation. Raises GatewayError.
        """
        lanes, found = self._lanes(), self._present(ids)
        own, prepares = _once(found.values()), "prepare" in lanes.abilities
        self._use_again(found)

        # The check may need an answer that a driver with a faulty board has only after prepare(): then it runs again.
        checked = True
        try:
            await check(ids, own, lanes)
        except DriverError:
            if not prepares:
                raise
            checked = False

        # Meanwhile an id may have got other hardware, which isn't what was checked, nor in use as this one's.
        before, found = found, self._present(ids)
        for offered, device in found.items():
            if not (was := hardware(before[offered])) <= (is_ := hardware(device)):
                raise self._became(offered, was, is_)
        own = _once(found.values())

        # A kubelet asks before it creates a container, so the predecessor has ended, and its hardware is free.
        # Preparing a device may ruin another one that is the same hardware, so a conflict is refused.
        if reasons := self._exclusion.conflicts(own):
            self._usage.set(self._usage.value.stops(ids))
            self._exclusion.uses_changed()
            id_, reason = next(iter(reasons.items()))
            raise self._refused(f"device {id_} can't be prepared: {reason}")
        self._starts({offered: hardware(device) for offered, device in found.items()})
        if prepares:
            began = self._clock.monotonic()
            await lanes.prepare(own)
            self._log_later("prepared %s for a container, in %s", ids, own, api, began)
        if not checked:
            await check(ids, own, lanes)

        # Only what was prepared is in use. A device may be away for a moment, because it was prepared.
        for offered, device in found.items():
            now = self._ledger.device(offered)
            if now is not None and not (is_ := hardware(now)) <= (was := hardware(device)):
                raise self._became(offered, was, is_)

    def _became(self, offered: str, was: frozenset[str], is_: frozenset[str]) -> RequestError:
        became = f"{', '.join(sorted(is_))} instead of {', '.join(sorted(was))}"
        return self._refused(f"device {offered} became other hardware while its container starts: {became}")

    def _present(self, ids: Sequence[str]) -> Mapping[str, Device]:
        """The present device of each id. Raises RequestError if one is gone: the ledger has the reason."""
        found = {}
        for offered in ids:
            device = self._ledger.device(offered)
            if device is None:
                refusal = self._ledger.resolve([offered], self._clock.monotonic())
                reason = refusal.reason if isinstance(refusal, Refusal) else "unknown"
                raise self._refused(f"device {offered} is {reason}")
            found[offered] = device
        return found

    async def show(self, names: Sequence[str], deliver: Deliver) -> Allocation:
        """What a container gets to monitor devices, by their ids: it holds none of them, and none is prepared or
        released. They may be in use, and Unhealthy. Raises GatewayError.
        """
        lanes, devices = self._lanes(), self._ledger.devices
        if absent := [name for name in names if name not in devices]:
            raise self._refused(f"device {absent[0]} isn't there any more")
        allocation = await lanes.show([devices[name] for name in names])
        return await deliver(self.complete(allocation, len(names)))

    def _use_again(self, found: Mapping[str, Device]) -> None:
        """Records as given what a container starts with although its pod counts as ended: a static pod whose manifest
        is back has the uid, and perhaps the devices, that it had. Hardware in use under another name is refused later.
        """
        before = self._usage.value
        ids = tuple([id_ for id_ in found if id_ in (before.held or ()) and id_ not in before.last_known])
        if not ids or self._exclusion.conflicts([found[id_] for id_ in ids]):
            return
        behind, names = {id_: hardware(found[id_]) for id_ in ids}, {id_: found[id_].id for id_ in ids}
        given = before.began(ids, behind).gave(ids, self._clock.monotonic(), behind, int(self._clock.time()), names)
        self._usage.set(given)
        self._exclusion.uses_changed()
        self._usage.reread()

    def _starts(self, behind: Behind) -> None:
        """Records that a container starts with this hardware and no other."""
        before = self._usage.value
        if (after := before.prepared(behind)) is not before:
            was, now = before.unreleased, after.unreleased
            others = [id_ for id_ in behind if id_ in was and was[id_].hardware != now[id_].hardware]

            # The container of an earlier attempt doesn't run, but the driver may still work on what that one had.
            reason, lanes = self._exclusion.unsure, self.driver.lanes
            if lanes is not None and not lanes.busy.isdisjoint(self.inventory.devices_of(others)):
                reason = "the driver still works on what they were before"
            if others and reason:
                what = f"{', '.join(others)} can't be prepared: they became other hardware, and {reason}"
                raise self._refused(what)
            self._usage.set(after)
            self._exclusion.uses_changed()

    def _lanes(self, options: object = None) -> Lanes:
        """``options``: a claim's own, None without any."""
        lanes, driver = self.driver.lanes, f"its driver {self.config.value.driver}"
        if lanes is None:
            raise self._refused(f"{driver} isn't running; see the log")
        if options is not None and "with_options" not in lanes.abilities:
            raise self._refused(f"{driver} takes no parameters: it has no with_options()")
        return lanes

    def _refused(self, why: str) -> RequestError:
        return RequestError(f"resource {self.inventory.name}: {why}")

    # the log

    def log_once(self, level: int, message: str) -> None:
        """Logs the message once per configuration, because every allocation repeats it."""
        if (key := (self.config.version, message)) not in self._logged:
            self._logged.add(key)
            self.log.log(level, message)

    def _log_later(self, text: str, ids: Sequence[str], devices: Sequence[Device], api: str, began: float) -> None:
        """Logs after the front has sent its answer, so that no container waits for the log."""
        seconds, names = self._clock.monotonic() - began, [device.id for device in devices]
        number = f"{len(ids)} device{'s' if len(ids) != 1 else ''}"
        took = f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
        which = {"devices": names, "ids": None if names == list(ids) else list(ids), "count": len(ids)}
        fields = {**which, "api": api, "seconds": round(seconds, 6)}
        asyncio.get_running_loop().call_soon(partial(self.log.info, text, number, took, extra=fields))


def _once(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Each device once, however many of its shares are asked for."""
    return tuple({device.id: device for device in devices}.values())

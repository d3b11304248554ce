"""Pools: resources that may offer the same hardware, and exclude what another member uses.

Theory of operation. A resource is in its pool from the moment it is configured. The pool grants nothing until the
holdings of all members are known, nor while another gateway serves one of them (``elsewhere``). Two uses count for
every resource, in a pool or not, because the hardware may be any resource's by now: holdings of resources that are no
longer configured, also while these still end, and calls that go on after their driver ended.

A resource whose new configuration names another pool stays in its pool until that configuration is served (``going``).
Until then it excludes in both, and both pools hear of each other's uses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial

from dpgateway.config import ResourceConfig
from dpgateway.drivers.running import CallsAfterClose
from dpgateway.errors import KubeletError
from dpgateway.kit.observable import Observable
from dpgateway.model import Device
from dpgateway.resource.elsewhere import Elsewhere
from dpgateway.resource.exclusion import Exclusion, Pool
from dpgateway.resource.front import InUse, Unreleased
from dpgateway.resource.orphans import Orphans, Record, recorded
from dpgateway.resource.use import HardwareUse, certain, hardware_use, worked_on

ENDING = 3.0
"""Seconds that another gateway has to end, after it freed one of its resources."""


async def _nothing() -> None:
    """There is no other front."""


class Pools:
    """All pools of this gateway. Used from the event loop.

    A resource is first added, with a placeholder in its pool (``_of``), and joins when it is served (``_served``).
    A changed configuration may move a served resource to another pool, so the two come and go independently.
    """

    def __init__(self, orphans: Orphans, after_close: CallsAfterClose) -> None:
        self._orphans, self.after_close = orphans, after_close.now
        self.left: Observable[Mapping[str, InUse]] = Observable({})
        """`left` contains the other front's grants that aren't released yet, keyed by resource. A freed id is in it
        until it is known whether a driver here releases it.
        """
        self.in_doubt = Observable(frozenset[str]())
        """The resources whose devices another front may have granted without a record."""
        self.configs: dict[str, ResourceConfig] = {}
        """`configs` contains the configured resources, on whichever front, keyed by name."""
        self.journals = orphans.journals
        self.record: Record = recorded
        """Writes what a resource owes to its journal."""
        self.look_at_left: Callable[[], Awaitable[None]] = _nothing
        """Brings `left` up to date. Raises GatewayError, OSError."""
        self._pools: dict[str, Pool] = {}
        """`_pools` contains the configured pools, keyed by name."""
        self._of: dict[str, Pool] = {}
        """`_of` contains the pool of each configured resource; a resource without one has a pool of its own."""
        self.elsewhere = Elsewhere(orphans, self._besides_changed)
        self._served: dict[str, Exclusion] = {}
        """`_served` contains the resources that have joined, keyed by name."""
        self.going: dict[str, str] = {}
        """`going` contains the pool to which a resource goes that is served in another one, keyed by name."""
        self._ending: set[str] = set()
        """The resources that are no longer configured, and still end here."""
        self._looking = asyncio.Lock()
        self._waiting = self._looked = 0
        """Tickets of :meth:`others_ended`: calls so far, and calls already served by a scan of the journals."""

    async def run(self) -> None:
        """Follows orphans, calls of ended drivers, and other gateways; never returns."""
        self.after_close.subscribe(self._besides_changed)
        for value in (self.left, self.in_doubt):
            value.subscribe(self._besides_changed)
        async with asyncio.TaskGroup() as group:
            orphans = self._orphans.run(self._besides_changed, self.owe, self.record)
            group.create_task(orphans, name="what containers hold of resources that went")
            group.create_task(self.elsewhere.run(), name="what other gateways serve")

    def _besides_changed(self) -> None:
        for pool in {id(pool): pool for pool in self._of.values()}.values():
            pool.tell()

    def _besides(self, pool: str) -> Iterator[HardwareUse]:
        """The uses that count in the pool of this name besides its members'."""
        # A stranger may grant hardware of this pool under a name unknown here; so may the server of a member.
        if text := self.elsewhere.stranger(pool):
            yield HardwareUse("a resource that isn't configured here", elsewhere=text)
        for name in self.elsewhere.served.keys() & self._pools[pool].members.keys():
            yield HardwareUse(name, elsewhere=self.elsewhere.served[name])
            break  # one suffices to block the pool
        for name in self.in_doubt.value & self._pools[pool].members.keys():
            yield HardwareUse(_on_another_front(name))
            break
        # Until the journals have been read, orphans may hold any hardware.
        if not self._orphans.known.is_set():
            yield HardwareUse("a resource that isn't configured any more")
        yield from self._ended(self._pools[pool])

    def _besides_one(self, resource: str) -> Iterator[HardwareUse]:
        """The same for a resource without a pool: a stranger that may be this resource, and certain uses by others."""
        gateways = self.elsewhere.after(resource) if self.elsewhere.older else frozenset[str]()
        if gateways and (text := self.elsewhere.stranger("", gateways)):
            yield HardwareUse("a resource that isn't configured here", elsewhere=text)
        if resource in self.in_doubt.value:
            yield HardwareUse(_on_another_front(resource))
        # Nearly always there are none.
        if self._orphans.usages or self.left.value or self.after_close.value or self._ending or self.going:
            for one in self._ended(self._of[resource]):
                # Its own holdings on another front aren't just any resource's: they are of the same hardware.
                if one.resource == _on_another_front(resource) and not one.known:
                    yield one
                elif one.resource != resource:
                    yield certain(one)

    def _ended(self, pool: Pool) -> Iterator[HardwareUse]:
        """The uses of what fronts gave of resources that they don't offer now, of resources that end, of pools that
        resources leave for this one, or this one for, and of calls of ended drivers.
        """
        orphans = [(name, self._orphans.in_use(name)) for name in self._orphans.usages]
        for name, in_use in (*orphans, *self.left.value.items()):
            if self._counts(name, pool):
                whose = name if name not in self._of else _on_another_front(name)
                yield hardware_use(whose, in_use, self._device_of(name))
        for name in self._ending:
            if name not in pool.members and name in self._served:
                yield self._served[name].own_use()
        # One that goes to another pool excludes in both: it serves on until its new driver has devices.
        for name, following in self.going.items():
            if (after := self._pools.get(following)) is pool and name in self._served:
                yield certain(self._served[name].own_use())
            elif after is not None and name in pool.members:
                yield from (certain(one.own_use()) for one in after.members.values() if one is not None)
        for call in self.after_close.value:
            yield worked_on(call.resource, call.method, call.devices)

    def _counts(self, name: str, pool: Pool) -> bool:
        """Whether what another front gave of this resource counts in the pool; of one that isn't configured it does."""
        own = self._of.get(name, pool)
        return own is pool or name in self._ending or pool in own.beside

    def _see_beside(self) -> None:
        """Sets which pools are beside one another: a resource goes from the one to the other."""
        for pool in (*self._pools.values(), *self._of.values()):
            pool.beside = ()
        for name, following in self.going.items():
            before, after = self._of.get(name), self._pools.get(following)
            if before is not None and after is not None and before is not after:
                before.beside, after.beside = (*before.beside, after), (*after.beside, before)

    def _device_of(self, name: str) -> Callable[[str], Device | None]:
        """What finds the present device of an id that the other front gave, if the journal that had its hardware is
        lost. A resource has the same ids on both.
        """
        member = self._served.get(name) if name in self._of else None
        return member.ledger.device if member is not None else lambda _: None

    def add(self, config: ResourceConfig) -> None:
        """The resource is configured from now on, or has moved to another pool, perhaps while it is served."""
        self.configs[config.name] = config
        if self.going.get(config.name) == config.pool:  # else it starts again with an earlier configuration
            self.going.pop(config.name, None)
        if config.on == self._orphans.front:
            self._orphans.offered(config.name)
        else:
            self._orphans.moved(config.name)
        self.elsewhere.configured(config.name)
        before = self._of.get(config.name)
        if config.pool:
            pool = self._pools.setdefault(config.pool, Pool(partial(self._besides, config.pool)))
        else:
            pool = Pool(partial(self._besides_one, config.name), alone=True)

        # No move: the same pool, or none before and after.
        if before is pool or (before is not None and before.alone and pool.alone):
            self._see_beside()
            return
        self._leave(config.name)
        self._of[config.name] = pool
        self._see_beside()

        # A served resource excludes at once; another one blocks its pool until its holdings are known.
        if config.name in self._served:
            self._served[config.name].join(pool)
            pool.tell(config.name)
        else:
            pool.expect(config.name)

    def join(self, member: Exclusion) -> None:
        """The resource takes its placeholder's place: it is going to be served."""
        self._served[member.name] = member
        if member.name in self._of:
            member.join(self._of[member.name])

    def on_other_front(self, name: str) -> tuple[InUse, ...]:
        """What the other front gave of a configured resource, before the resource changed its front."""
        orphan, left = self._orphans.usages.get(name), self.left.value.get(name)
        return tuple([one for one in (orphan.value if orphan is not None else None, left) if one is not None])

    def owe(self, name: str, id_: str, entry: Unreleased) -> bool | None:
        """The other front gave this id, and it is free now. Has the resource release it, as if a grant of its own had
        failed; until then it isn't free. Returns whether it will: only the driver that gave a device can release it.
        None while no driver of the resource runs here, or another gateway serves it.
        """
        if not entry.driver or name not in self._of:
            return False
        member = self._served.get(name)
        if member is None or name in self.elsewhere.served or member.usage.value.driver is None:
            return None
        # One that leaves the front that gave the id is in its pool until the next one takes its place.
        if member.usage is self._orphans.usages.get(name):
            return None
        if member.usage.value.driver != entry.driver:
            return False
        member.usage.set(member.usage.value.owed((id_,), {id_: entry.hardware}, {id_: entry.device}))
        return True

    async def others_ended(self) -> None:
        """Waits until the grants of a gateway that served until now are known, of resources that aren't configured
        here, too: their hardware may be in any pool. One scan of the journals serves all waiting callers.
        """
        # A scan serves the callers that were waiting when it began; a later one needs another.
        self._waiting += 1
        mine = self._waiting
        async with self._looking:
            if self._looked >= mine:
                return
            # Until no other gateway owns a resource that isn't configured here, or ENDING is over.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDING):
                    for one in self.elsewhere.others():
                        with contextlib.suppress(KubeletError, OSError):  # the sweep reports a broken lock
                            await one.until_free()
            waiting = self._waiting
            await self._orphans.look()
            self._looked = waiting

    async def known(self, name: str) -> None:
        """Waits until the orphans, and the holdings of the resource's whole pool, are known. A resource without a pool
        waits for the orphans, too: it may get a pool at any time.
        """
        await self._orphans.known.wait()
        if name in self._of and not self._of[name].alone:
            await self._of[name].known.wait()

    def together(self, name: str) -> tuple[str, ...]:
        """The resource and the members of its pool, and of those beside it, that the device plugin hands over, without
        those that another gateway serves already. Those by DRA go with their driver.
        """
        pools = (self._of[name], *self._of[name].beside) if name in self._of else ()
        members = dict.fromkeys(one for pool in pools for one in pool.members) or (name,)
        here = {one for one in members if one in self.configs and self.configs[one].on == self._orphans.front}
        return tuple([one for one in members if one == name or (one in here and one not in self.elsewhere.served)])

    def follow(self, config: ResourceConfig) -> None:
        """The resource is to have this configuration, and may have an earlier one until it gets it (:meth:`add`)."""
        before = self.going.pop(config.name, None)
        if config.pool and self._pools.get(config.pool) is not self._of[config.name]:
            self.going[config.name] = config.pool
        if self.going.get(config.name) != before:
            self._see_beside()
            self._besides_changed()

    def end(self, names: Collection[str]) -> None:
        """These resources are no longer configured: what containers hold of them counts for all others from now on,
        however long they take to end (:meth:`remove`).
        """
        self._ending.update(names)
        self._besides_changed()

    def remove(self, name: str) -> None:
        """The resource is no longer configured nor served; its holdings become an orphan's."""
        self._orphans.removed(name)
        self._ending.discard(name)
        self.going.pop(name, None)
        self.configs.pop(name, None)
        self.elsewhere.drop(name)
        self._leave(name)
        self._served.pop(name, None)
        self._see_beside()
        self._besides_changed()

    def _leave(self, name: str) -> None:
        pool = self._of.pop(name, None)
        if pool is not None:
            pool.leave(name)
            if name in self._served:
                self._served[name].join(Pool(alone=True))


def _on_another_front(resource: str) -> str:
    """The name of a resource's holdings on a front that doesn't offer it now, for people."""
    return f"{resource} on the other front"

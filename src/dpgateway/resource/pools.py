"""Pools: resources whose devices may be the same hardware. What one of them uses, the others don't give away.

Everything happens in the event loop and waits for nothing: the first to begin to use hardware has it, and the others
know before anything else can happen.

A resource is in its pool from the moment it is configured: until somebody has looked at what its containers hold,
nothing of the pool is given away; nor while another gateway serves a part of it (``elsewhere``). What containers still
hold of resources that aren't configured any more counts for every resource, in a pool or not, because that hardware may
be any resource's by now. So does hardware that a driver's call still works on although that driver has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.drivers.running import CallsAfterClose
from dpgateway.errors import KubeletError
from dpgateway.resource.elsewhere import Elsewhere
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.ownership import others
from dpgateway.resource.use import Used, certain, used, worked_on

ENDING = 3.0
"""Seconds that another gateway has to end, once one of its resources is free."""


class Member(Protocol):
    """One resource of the pool."""

    @property
    def name(self) -> str: ...

    def used(self) -> Used: ...

    def exclude(self, others: Sequence[Used]) -> None:
        """Lists its devices accordingly."""

    def join(self, pool: Pool | None) -> None:
        """From now on nothing is given away that another member of the pool uses; None: it is in none any more."""


class Pool:
    """One pool. Each member asks what the others use when it gives a device away (:meth:`others`), and is told when
    that becomes something else (:meth:`tell`).
    """

    def __init__(self, besides: Callable[[], Iterable[Used]] = tuple, *, alone: bool = False) -> None:
        """``besides`` says what is used under names that aren't in the pool, but count in it. ``alone``: this is no
        pool that anybody configured, but one resource that is in none.
        """
        self.members: dict[str, Member] = {}
        """By resource."""
        self.alone = alone
        self.known = asyncio.Event()
        """Set while it is known what containers hold of each of them."""
        self._besides = besides

    def expect(self, member: Member) -> None:
        """``member`` stands for the resource until that joins."""
        self.join(member)
        self.known.clear()

    def join(self, member: Member) -> None:
        self.members[member.name] = member

    def leave(self, name: str) -> None:
        self.members.pop(name)
        if self.members:
            self.tell()

    def others(self, name: str) -> Sequence[Used]:
        """What is used under other names than this one, as far as it keeps a device from anybody."""
        besides = tuple(self._besides())
        if len(self.members) > 1:
            uses = {other: member.used() for other, member in self.members.items() if other != name}
            return (*_that_count(uses).values(), *besides)
        return besides

    def tell(self, name: str = "") -> None:
        """What is used under this name has changed; without a name, what is used besides."""
        uses = {other: member.used() for other, member in self.members.items()}
        besides = tuple(self._besides())
        if all(use.known for use in (*uses.values(), *besides)):
            self.known.set()
        else:
            self.known.clear()
        counting = _that_count(uses)
        for other, member in tuple(self.members.items()):
            if other != name:
                member.exclude((*(use for owner, use in counting.items() if owner != other), *besides))


def _that_count(uses: Mapping[str, Used]) -> Mapping[str, Used]:
    """Those that keep a device from anybody, because a pool may have hundreds that use nothing. Of those of which only
    that is known that nothing is known two are enough, so that each of the pool sees another one than itself.
    """
    using = {name: use for name, use in uses.items() if use.behind}
    unsure = islice((name for name, use in uses.items() if use.unsure and name not in using), 2)
    return using | {name: uses[name] for name in unsure}


@dataclass(frozen=True, slots=True)
class _Expected:
    """A resource that isn't served yet: nobody has looked at what its containers hold."""

    name: str

    def used(self) -> Used:
        return Used(self.name)

    def exclude(self, others: Sequence[Used]) -> None:
        """It lists nothing."""

    def join(self, pool: Pool | None) -> None:
        """It gives nothing away."""


class Pools:
    """Used from the event loop."""

    def __init__(self, orphans: Orphans, after_close: CallsAfterClose) -> None:
        self._orphans, self._after_close = orphans, after_close.now
        self._pools: dict[str, Pool] = {}
        self._of: dict[str, Pool] = {}
        """By resource, also of those that are in no pool that is configured."""
        self.elsewhere = Elsewhere(orphans, self._besides_changed)
        self._served: dict[str, Member] = {}
        self._looking = asyncio.Lock()
        self._waiting = self._looked = 0
        """How many resources have waited for another gateway so far, and for how many of them somebody has looked."""

    async def run(self) -> None:
        """Follows what is left of resources that aren't configured any more, and of their drivers; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._orphans.run(self._besides_changed), name="what containers hold of resources that went"
            )
            group.create_task(self._follow_calls(), name="calls of drivers that ended")
            group.create_task(self.elsewhere.run(), name="what other gateways serve")

    async def _follow_calls(self) -> None:
        seen = 0
        while True:
            seen = await self._after_close.wait(seen)
            self._besides_changed()

    def _besides_changed(self) -> None:
        for pool in {id(pool): pool for pool in self._of.values()}.values():
            pool.tell()

    def _besides(self, pool: str) -> Iterator[Used]:
        """What counts in a pool, of this name, besides its members."""
        if text := self.elsewhere.stranger(pool):
            yield Used("a resource that isn't configured here", elsewhere=text)
        for name in self.elsewhere.served.keys() & self._pools[pool].members.keys():
            yield Used(name, elsewhere=self.elsewhere.served[name])
            break  # one is enough
        if not self._orphans.known.is_set():
            yield Used("a resource that isn't configured any more")
        yield from self._ended()

    def _besides_one(self, resource: str) -> Iterator[Used]:
        """The same for a resource in no pool."""
        if self.elsewhere.older and (text := self.elsewhere.renamed(resource)):
            yield Used("a resource that isn't configured here", elsewhere=text)
        for one in self._ended():
            if one.resource != resource:
                yield certain(one)

    def _ended(self) -> Iterator[Used]:
        """What is used of resources that went, and of drivers that ended."""
        for name, holdings in self._orphans.usages.items():
            yield used(name, holdings.value, lambda _: None, untold=False)
        for call in self._after_close.value:
            yield worked_on(call.resource, call.method, call.devices)

    def add(self, config: ResourceConfig) -> None:
        """The resource is configured from now on, or is in another pool than before, although it is served still."""
        self._orphans.drop(config.name)
        self.elsewhere.configured(config.name)
        pool, before = self._pool(config), self._of.get(config.name)
        if before is pool or (before is not None and before.alone and pool.alone):
            return
        self._leave(config.name)
        self._of[config.name] = pool
        if config.name in self._served:
            self._served[config.name].join(pool)
            pool.tell()
        else:
            pool.expect(_Expected(config.name))

    def _pool(self, config: ResourceConfig) -> Pool:
        if config.pool:
            return self._pools.setdefault(config.pool, Pool(partial(self._besides, config.pool)))
        return Pool(partial(self._besides_one, config.name), alone=True)

    def join(self, member: Member) -> None:
        """The resource is going to be served."""
        self._served[member.name] = member
        if member.name in self._of:
            member.join(self._of[member.name])

    async def others_ended(self) -> None:
        """Another gateway has served until now, perhaps also resources that aren't configured here: waits until it is
        known what it gave away of these, because that hardware may be in any pool. One looks for all that wait.
        """
        self._waiting += 1
        mine = self._waiting
        async with self._looking:
            if self._looked >= mine:
                return
            await self._until_free()
            waiting = self._waiting
            await self._orphans.look()
            self._looked = waiting

    async def _until_free(self) -> None:
        """Returns once no other gateway owns a resource that isn't configured here, or after ENDING."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING):
                for one in others(self._orphans.directory, self._orphans.configured):
                    with contextlib.suppress(KubeletError, OSError):  # whoever sweeps tells what is wrong with its lock
                        await one.until_free()

    async def known(self, name: str) -> None:
        """Waits until it is known what containers hold of each resource of this one's pool. A resource that is in none
        may come into one at any time.
        """
        await self._orphans.known.wait()
        if name in self._of and not self._of[name].alone:
            await self._of[name].known.wait()

    def together(self, name: str) -> tuple[str, ...]:
        """The resources of this one's pool, and itself, without those that another gateway has already."""
        members = self._of[name].members if name in self._of else (name,)
        return tuple([one for one in members if one == name or one not in self.elsewhere.served])

    def remove(self, name: str) -> None:
        """The resource isn't configured any more, and isn't served."""
        self._orphans.add(name)
        self.elsewhere.drop(name)
        self._leave(name)
        self._served.pop(name, None)

    def _leave(self, name: str) -> None:
        pool = self._of.pop(name, None)
        if pool is not None:
            pool.leave(name)
            if name in self._served:
                self._served[name].join(None)

"""The resources of the DRA front, and what they offer: the content of their pools, and how their devices are.

A pool is left as it is until each of its resources has listed: a configured resource that isn't offered yet is
*expected*. An offered one is a *member*. Nothing is told before the records of claims are known, and nothing any more
once the process ends: then the slices stay for the next gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.dra.claims.choosing import Offering
from dpgateway.dra.health import HealthStreams, SaidHealth
from dpgateway.dra.pools import pools
from dpgateway.dra.preparing import NodeClaims
from dpgateway.dra.publishing import Us
from dpgateway.dra.report import Unpublished
from dpgateway.dra.slices.due import Wanted
from dpgateway.dra.slices.layout import contents
from dpgateway.dra.slices.offered import Offered
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal

WARMING = 30.0
"""Seconds that drivers have for their first lists, before this gateway takes over from another one."""
GIVING = 5.0
"""Seconds that resources have to free their locks."""

_log = bind(__name__)


class PublishedResource(Offering, Protocol):
    """A resource on this front."""

    name: str

    @property
    def pool(self) -> str: ...

    def offered(self) -> Sequence[Offered] | None: ...

    def counts(self, pool: str, id_: str) -> bool: ...

    def said_health(self) -> tuple[SaidHealth, ...]: ...

    def give(self) -> None:
        """Another gateway takes it over."""


class Members:
    """Used from the event loop."""

    def __init__(self, us: Us, claims: NodeClaims, loaded: asyncio.Event, publish: Callable[[Wanted], object]) -> None:
        """``loaded``: set once the records of earlier gateways are known; ``publish``: called with what the slices
        should be.
        """
        self._us, self._claims, self._loaded, self._publish = us, claims, loaded, publish
        self._offered = dict[str, PublishedResource]()
        self._expected: dict[str, str] = {}
        """The pool of each configured resource that isn't offered yet, by the resource's name."""
        self.health = HealthStreams(lambda: tuple([one for it in self._offered.values() for one in it.said_health()]))
        self.offers: Callable[[str], bool] = lambda _: True
        """Whether a resource may be offered now: it may have another front, or be about to change it."""
        self.withdrawn = False
        """Whether nothing is offered because dpgateway is going to be removed."""
        self.frozen = False
        """Whether the process is about to end."""
        self.left_out: dict[str, Unpublished] = {}
        """What slices can't have, by pool."""
        self._complaint = Complaint(_log, "not all devices are in slices: %s")
        self._drivers: dict[str, RunningDriver] = {}
        self._listed, self._left = Signal(), Signal()
        """``_listed``: a driver may have listed; ``_left``: a resource has freed its lock."""
        self._going: set[str] = set()
        """The resources that are about to free their locks."""

    @property
    def names(self) -> frozenset[str]:
        """The resources that are offered, or are going to be."""
        return frozenset({*self._expected, *self._offered})

    def expect(self, config: ResourceConfig) -> None:
        """A resource is going to be offered: its pool is left alone until then."""
        self._expected[config.name] = self._us.pool_of(config)
        self._claims.store.expect(config.name)
        self.look()

    def forget(self, name: str) -> None:
        """The resource isn't configured any more."""
        if self._expected.pop(name, None) is not None:
            self._claims.store.drop(name)
            self.look()

    def add(self, member: PublishedResource) -> None:
        """Offers the resource. Raises KubeletError if another gateway has the driver meanwhile."""
        if not self._loaded.is_set():
            raise KubeletError("another gateway has taken the driver over")
        self._offered[member.name] = member
        self._expected.pop(member.name, None)
        self.look()

    def remove(self, member: PublishedResource) -> None:
        """The resource isn't offered any more; at the end of the process it is left as it is."""
        if self.frozen:
            return
        store = self._claims.store
        if self._offered.pop(member.name, None) is not None or store.offerings.get(member.name) is member:
            store.drop(member.name)
            if member.name in self._expected:  # it begins again, so claims wait for it
                store.expect(member.name)
            self.look()

    def withdraw(self, *, withdrawn: bool) -> None:
        """Offers nothing, or all again. Claims end as ever: before dpgateway is removed, its pods have to."""
        self.withdrawn = withdrawn
        self.look()

    def look(self) -> None:
        """Publishes what the resources offer now, and how their devices are."""
        if self.frozen or not self._loaded.is_set():
            return
        self.health.look()
        # In an order that doesn't depend on which driver lists first: else a restart writes the slices of pools anew.
        members = [one for _, one in sorted(self._offered.items()) if self.offers(one.name)]
        offered = [(one.pool, () if self.withdrawn else one.offered()) for one in members]
        made = pools(self._expected.values(), offered, self._us.driver)
        for name in self.left_out.keys() - made.keys():
            del self.left_out[name]
        self.left_out |= {name: Unpublished(one.left_out, one.unsaid) for name, one in made.items() if one is not None}
        self._publish({name: None if one is None else contents(one) for name, one in made.items()})
        self._complaint.say(*[text for one in self.left_out.values() for text in one.devices])

    def counts(self, pool: str, resource: str, id_: str) -> bool:
        """Whether the scheduler knows that this id of a resource is in use, by the counters of the pool."""
        member = self._offered.get(resource)
        return member is not None and member.counts(pool, id_)

    # from one gateway to the next

    def runs(self, name: str, driver: RunningDriver) -> None:
        """The resource's driver runs, whether or not the resource is this gateway's."""
        self._drivers[name] = driver
        driver.state.subscribe(self._listed.notify)

    async def warm(self) -> None:
        """Returns once the drivers of all resources have listed, or after WARMING: one that hangs mustn't keep the
        others from an upgrade.
        """
        driver = self._drivers.get
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WARMING):
                while any(it is None or it.state.value.devices is None for it in map(driver, self._expected)):
                    await self._listed.wait(self._listed.version)

    async def give(self) -> None:
        """Has all resources free their locks, within GIVING."""
        for member in tuple(self._offered.values()):
            self._going.add(member.name)
            self._expected[member.name] = member.pool  # if the newer gateway ends, it is offered here again
            member.give()
        with contextlib.suppress(TimeoutError):  # its lock tells the newer gateway that it is still here
            async with asyncio.timeout(GIVING):
                while self._going:
                    await self._left.wait(self._left.version)

    def left(self, name: str) -> None:
        """The resource has freed its lock."""
        self._going.discard(name)
        self._left.notify()

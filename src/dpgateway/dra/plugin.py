"""One resource on the DRA front: its devices in the node's slices, its grants by claims.

A resource needs no socket of its own: the driver's service has the claims of all resources (``front``). What is left is
the resource's life: it waits for its lock, begins once the holdings are known, and is offered from its first list on.
At the end of the process its slices stay, so that a successor, or the same gateway after a restart, leaves no gap: the
kubelet deletes them 30 s after the last service of the driver is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from dpgateway.config import ResourceConfig
from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.records import ClaimRecord, Given
from dpgateway.dra.front import DraFront
from dpgateway.dra.health import SaidHealth, said
from dpgateway.dra.slices.names import key, label
from dpgateway.dra.slices.offered import Offered
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError, OnOtherFront
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import retry
from dpgateway.model import hardware
from dpgateway.node.incarnation import Change
from dpgateway.resource.resource import Resource

_log = bind(__name__)


class DraPlugin:
    """Used from the event loop. :meth:`run` serves until it is cancelled; :meth:`drain` and :meth:`close` follow."""

    def __init__(
        self, config: Observable[ResourceConfig], driver: RunningDriver, front: DraFront, group: asyncio.TaskGroup
    ) -> None:
        """``config`` changes in place (config/changes.py)."""
        self.name = name = config.value.name
        self._config, self._front, self._group = config, front, group
        self._log = bind(_log, resource=name, driver=config.value.driver)
        self.usage = front.claims.store.usage(name)
        self.resource = Resource(config, driver, self.usage, front.common, self._log)
        self.granting = self.resource.granting
        self.standing, self.taken_back, self.streaming = Observable(front.standing.value), False, False
        self.refused: Observable[tuple[str, float] | None] = Observable(None)
        self.rival, self.outdated = Observable(""), Observable[Mapping[str, str]]({})
        self.rpcs, self.attempts = CallStats(), dict[tuple[str, str], int]()
        self._given = asyncio.Event()
        self._moved = frozenset[str]()
        """The devices that are left out of the slices, because claims have them without the scheduler's knowledge."""
        self._said: tuple[tuple[object, ...], tuple[SaidHealth, ...]] = (), ()
        """The last health of all devices, and what it was made of."""
        front.runs(name, driver, self.standing)
        config.subscribe(front.members.look)

    @property
    def values(self) -> tuple[Signal, ...]:
        """Everything observable about it, for subscribers to all changes."""
        resource = self.resource
        return (
            resource.inventory.list,
            self.usage,
            self.standing,
            resource.inventory.rejected,
            resource.driver.state,
            resource.trouble,
            resource.ownership.other,
        )

    # the devices

    @property
    def pool(self) -> str:
        """The pool of its slices: its own, or that of all resources that may offer the same hardware."""
        return self._front.us.pool_of(self._config.value)

    def id_of(self, pool: str, device: str) -> str | None:
        if pool == self.pool:
            for id_ in self.resource.inventory.ledger.devices:
                if label(self._key(id_)) == device:
                    return id_
        return None

    def _key(self, id_: str) -> str:
        return key(self.name, self._config.value.pool, id_)

    def offered(self) -> Sequence[Offered] | None:
        """Its devices, and which of them are withheld; None while there is no list.

        What claims of the same pool have isn't withheld: the scheduler sees that by the pool's counters. If it came
        back into the slices only after a claim's end, pods that ask for it by the claim's resource would always be
        first, and those by another one never have their turn.
        """
        resource, config = self.resource, self._config.value
        if not resource.served or resource.inventory.list.value is None:
            return None
        if self._front.claims.store.doubts.why.value:  # no claim gets devices, so no pod should be sent here for one
            return [] if self._front.claims.store.doubts.compared else None
        ledger, failure = resource.inventory.ledger, resource.driver.state.value.failure
        self._moved, offered = self._held_unknown(), []
        for one in ledger.devices.values():
            withheld = one.id in self._moved
            # The scheduler has to know of all uses that exclude it. The ledger may not know of an end yet.
            if not withheld and ledger.excluded(one.id):
                found = resource.inventory.exclusion.excluders(one)
                withheld = found is None or not all(self._front.members.counts(self.pool, *use) for use in found)
            unhealthy, shares = failure or one.health.reason or "", config.shares.count
            name, names = self._key(one.id), hardware(one)
            offered.append(Offered(one, self.name, name, names, unhealthy, shares, withheld=withheld))
        return offered

    def counts(self, pool: str, id_: str) -> bool:
        """Whether only claims have the id, and by a device of this pool that is in the slices with its hardware."""
        in_use, ledger = self.usage.value, self.resource.inventory.ledger
        device, entry = ledger.device(id_), in_use.unreleased.get(id_)
        records = in_use.by_id.get(id_, ()) if isinstance(in_use, ClaimHoldings) else ()
        if pool != self.pool or not records or device is None or ledger.excluded(device.id):
            return False
        if not (names := hardware(device)) or (entry is not None and not entry.hardware <= names):
            return False
        name = label(self._key(device.id))
        given = [(record, one) for record in records for one in record.given if one.resource == self.name]
        return all(
            not self._is_unknown(record, one) and name in dict(one.devices) for record, one in given if id_ in one.ids
        )

    def _held_unknown(self) -> frozenset[str]:
        """The devices that claims have without the scheduler's knowledge."""
        ids = [
            id_
            for record in self._front.claims.store.records.values()
            for given in record.given
            if given.resource == self.name and self._is_unknown(record, given)
            for id_ in given.ids
        ]
        return frozenset(self.resource.inventory.devices_of(ids))

    def _is_unknown(self, record: ClaimRecord, given: Given) -> bool:
        """Whether the scheduler can't know that the claim has these devices, by an earlier configuration: by the name
        of another pool or driver; or as shares of a device that has none now, which it takes for free (deviceInUse of
        1.36, in staging/src/k8s.io/dynamic-resource-allocation/structured).
        """
        here, driver, shared = self.pool, self._front.us.driver, self._config.value.shares.count > 1
        elsewhere = (given.pool, record.driver or driver) != (here, driver)
        return elsewhere or (not shared and any(share for _, share in given.devices))

    def said_health(self) -> tuple[SaidHealth, ...]:
        """How its devices are, and those that claims have; nothing while there is no list."""
        resource = self.resource
        if not resource.served or resource.inventory.list.value is None:
            return ()
        ledger, failure, pool = resource.inventory.ledger, resource.driver.state.value.failure, self.pool
        # It is asked each few seconds, and rarely has news.
        since = resource.inventory.list.value, self.usage.value, failure, pool
        if self._said[0] == since:
            return self._said[1]
        reasons = {one.id: one.health.reason or failure for one in ledger.devices.values()}
        names = {id_: (pool, label(self._key(id_))) for id_ in reasons}
        records = self._front.claims.store.records.values()
        given = [one for record in records for one in record.given if one.resource == self.name]
        self._said = since, said(reasons, names, given, ledger.means)
        return self._said[1]

    # life cycle

    async def run(self) -> bool:
        """Serves until it is cancelled. Returns early, with True, if another gateway takes the driver over."""
        self._group.create_task(self.resource.run(), name=f"{self.name} itself")
        self._group.create_task(self._follow(), name=f"{self.name} holdings")
        await retry(self._serve, self._failed)
        await self._given.wait()
        self.resource.went("another gateway has taken it over")
        return True

    def give(self) -> None:
        """Another gateway takes it over."""
        self._given.set()

    async def _serve(self) -> None:
        # The driver's lock comes first: a gateway that waits for that must not have a resource's.
        if not self._front.loaded.is_set():
            self.resource.ownership.release()
        await self._front.loaded.wait()
        await self.resource.ownership.acquire()
        try:
            if self._front.loaded.is_set():
                self._front.claims.store.add(self.name, self)
                await self.resource.begin(took_over=False)
                self.resource.inventory.list.subscribe(self._front.members.look)
            if self._front.loaded.is_set():
                self._front.members.add(self)
            else:  # the driver went to another gateway before that could know of this resource
                self.give()
        except OnOtherFront:
            self._front.members.remove(self)  # it keeps the lock
            raise
        except (KubeletError, OSError):
            self._front.members.remove(self)
            self.resource.ownership.release()
            raise

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, KubeletError | OSError):
            raise error
        self.resource.cannot(error)

    async def _follow(self) -> None:
        """Applies each change of the claims to the list, to the pool's exclusions, and to the releases."""
        seen = 0
        while True:
            seen = await self.usage.wait(seen)
            self.resource.inventory.hold()
            self.resource.inventory.exclusion.uses_changed()
            if self._moved and self._moved != self._held_unknown():
                self._front.members.look()
            if self.usage.value.unsettled:
                self.resource.releases.release_due()

    def kubelet(self, change: Change) -> None:
        """The front follows the kubelet itself."""

    async def drain(self, grace: float) -> None:
        self.resource.stop()
        await self._front.drain(grace)
        self._front.members.remove(self)

    async def close(self) -> None:
        await self.resource.close()
        self.resource.ownership.end()
        self._front.members.left(self.name)

    def abandon(self) -> None:
        """Lets go of the ownership at once. May be called from any thread."""
        self.resource.ownership.abandon()

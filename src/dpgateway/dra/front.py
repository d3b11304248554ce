"""The parts of the DRA front that all resources of a node share: its service, registration, claims and slices.

The order at a start, and why::

    own         another gateway may still prepare claims, and write their records
    claims      what was given before is known before anything is given
    service     a kubelet dials it as soon as it has asked for the registration
    registered  the kubelet accepts the driver
    slices      only then pods may be sent here; each pool from the first list of all its resources on
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from dpgateway.cdi.own import OwnSpecs
from dpgateway.cluster.account import Account
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.config import Configuration, ResourceConfig
from dpgateway.dra.claims.choosing import OfferedElsewhere, Offering
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.health import HealthStreams, SaidHealth
from dpgateway.dra.instance import DriverInstance
from dpgateway.dra.owner import AskRuntime, unasked
from dpgateway.dra.pools import pools
from dpgateway.dra.preparing import ClaimParts, NodeClaims
from dpgateway.dra.publishing import Publisher, Us
from dpgateway.dra.reconciling import Reconciling
from dpgateway.dra.report import FrontParts, Reporting, Unpublished
from dpgateway.dra.slices.layout import contents
from dpgateway.dra.slices.names import key, label, pool_name
from dpgateway.dra.slices.offered import Offered
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError, RequestError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import first, retry
from dpgateway.kit.timestamp import timestamp
from dpgateway.node.node import boot
from dpgateway.node.podresources import PodResources
from dpgateway.resource.front import Standing
from dpgateway.resource.granting import Granting
from dpgateway.resource.journal import Journal
from dpgateway.resource.published import DraFigures, DraStatus, SwitchStatus
from dpgateway.resource.resource import Common

UNKNOWN = "unknown.dpgateway"
"""The driver's name, if claims are left of a driver that nobody names any more."""
FRONT = "dra"
"""The front's name."""
WARMING = 30.0
"""Seconds that drivers have for their first lists, before this gateway takes over from another one."""
OWNING, COMPARING = 5.0, 2.0
"""Seconds that a resource of another front waits for the records, and until they were compared."""
GIVING = 5.0
"""Seconds that resources have to free their locks."""

_log = bind(__name__)


async def _nothing() -> None:
    """No resource changes its front."""


class PublishedResource(Offering, Protocol):
    """A resource on this front."""

    @property
    def name(self) -> str: ...

    @property
    def pool(self) -> str: ...

    def offered(self) -> Sequence[Offered] | None: ...

    def counts(self, pool: str, id_: str) -> bool: ...

    def said_health(self) -> tuple[SaidHealth, ...]: ...

    def give(self) -> None:
        """Another gateway takes it over."""


class Cluster(NamedTuple):
    """What the front writes to, and who reads it."""

    server: ApiServer
    specs: OwnSpecs
    runtime: AskRuntime = unasked
    """Asks whether it reads the specs."""


class NodeState(NamedTuple):
    """What the front knows of its node."""

    there: asyncio.Event
    """Set once the kubelet's directory exists."""
    boot: str
    """The node's boot id."""
    pod_resources: Path | None = None
    """The socket of the kubelet's PodResources; None: the usual one, below its root directory."""


def dra_front(
    configuration: Configuration, node: tuple[str, asyncio.Event], common: Common, specs: OwnSpecs, runtime: AskRuntime
) -> DraFront:
    """The front of a configuration that has a DRA driver. ``node``: its name at the API server, and whether the
    kubelet's directory exists; ``common``: as the device-plugin front has it.
    """
    name, there = node
    us = Us(configuration.dra.driver or ClaimFiles(common.state_dir).driver() or UNKNOWN, name)
    cluster = Cluster(ApiServer(Account.of(configuration.cluster)), specs, runtime)
    # Journals of the two fronts have names of their own: what one of them gave, the other one can't release.
    common = replace(common, front=FRONT)
    state = NodeState(there, boot(), configuration.kubelet.pod_resources_socket)
    return DraFront(us, configuration.kubelet.root, cluster, common, state)


class DraFront:
    """Used from the event loop."""

    name = FRONT

    def __init__(self, us: Us, root: Path, cluster: Cluster, common: Common, node: NodeState) -> None:
        """``root``: the kubelet's root directory."""
        self.us, self.common, self.there, self.boot = us, common, node.there, node.boot
        files, left = ClaimFiles(common.state_dir), common.pools.left
        parts = ClaimParts(cluster.server, files, cluster.specs, common.threads, left, _log)
        self.claims = NodeClaims(us.driver, parts, node.boot)
        self.claims.store.journal = lambda name: Journal(common.state_dir, common.directory, name, common.front).load()
        self.claims.store.owe, self.claims.store.elsewhere = common.pools.owe, self._elsewhere
        self.claims.store.others, self.claims.store.in_doubt = self._pools_elsewhere, common.pools.in_doubt
        self.claims.elsewhere, self.claims.store.served_before = self._offered_elsewhere, set(self._offered_elsewhere())
        common.served.begun.subscribe(self.claims.store.served.notify)
        self.claims.store.doubt.subscribe(self.look)
        socket = node.pod_resources or root / "pod-resources" / "kubelet.sock"
        self._reconciling = Reconciling(self.claims, PodResources(socket, common.threads), root / "pods")
        common.served.begun.subscribe(self._reconciling.look_for_lost)
        self.loaded = asyncio.Event()
        """Set once the records of earlier gateways are known."""
        self.server, self._members = cluster.server, dict[str, PublishedResource]()
        self._expected: dict[str, str] = {}
        """`_expected` contains the pool of each configured resource that isn't offered yet, keyed by name."""
        self.health = HealthStreams(lambda: tuple([one for it in self._members.values() for one in it.said_health()]))
        self.instance = DriverInstance(root, us.driver, self.claims, self.health, self._warm)
        self.instance.answer.subscribe(self._answered)
        self.instance.needed = lambda: bool(self._members or self._expected or self.claims.store.records)
        self._drivers: dict[str, RunningDriver] = {}
        self._standings: dict[str, Observable[Standing]] = {}
        self.listed, self._left = Signal(), Signal()
        """``listed``: a driver may have listed; ``_left``: a resource has freed its lock."""
        self._allowed = Observable(False)
        self.standing = Observable(Standing(FRONT, "unready", timestamp()))
        seen = WatchedObjects(cluster.server, ObjectKind.SLICE, us.fields, Complaint(_log, "slices aren't seen: %s"))
        complaint = Complaint(_log, "slices aren't as they should be: %s")
        self.publisher = Publisher(cluster.server, us, seen, self._allowed, complaint)
        self.publisher.owner.runtime = cluster.runtime
        self.publisher.state.subscribe(self._stand)
        self.instance.ownership.other.subscribe(self._stand)
        self.seen = seen
        self._ending, self._withdrawn = False, False
        self.switches: Callable[[], tuple[SwitchStatus, ...]] = tuple
        """The groups of resources that change their front."""
        self.owned: Callable[[], Awaitable[None]] = _nothing
        """Called once the driver is this gateway's, and before anything is published. Raises GatewayError, OSError."""
        self.offers: Callable[[str], bool] = lambda _: True
        """Whether a resource may be offered now: it may have another front, or be about to change it."""
        self._going: set[str] = set()
        """The resources that are about to free their locks."""
        self._left_out: dict[str, Unpublished] = {}
        """`_left_out` contains what slices can't have, keyed by pool."""
        self._left_out_complaint = Complaint(_log, "not all devices are in slices: %s")
        self.reporting = Reporting(
            FrontParts(
                self.standing,
                self.instance.ownership,
                self.claims,
                self.publisher,
                seen,
                cluster.server,
                self._left_out,
            )
        )
        """What status and metrics say of the front."""

    async def run(self) -> None:
        """Serves until it is cancelled."""
        await self.there.wait()
        while True:
            await retry(self.instance.own, self._failed)
            # After a bug here the records in memory are right: calls go on, so what the disk has may be older.
            if not self.loaded.is_set():
                await retry(self.claims.load, self._failed)
                await retry(self.owned, self._failed)
                self.loaded.set()
            self.look()  # also without a resource: slices of earlier ones go
            await retry(self.instance.serve, self._failed)
            self.claims.store.kubelet_is_mute(mute=False)
            self._stand()
            async with asyncio.TaskGroup() as group:
                working = [
                    group.create_task(self.seen.run(), name="watch slices"),
                    group.create_task(self.publisher.run(), name="publish slices"),
                    group.create_task(self._reconciling.run(), name="reconcile claims"),
                    group.create_task(self.instance.keep(), name="keep the driver registered"),
                ]
                await self.instance.until_given()
                for one in working:
                    one.cancel()
            await self._give()

    async def _give(self) -> None:
        """Has all resources free their locks, then frees the driver's. What is published stays."""
        self.loaded.clear()
        self.claims.ends.rest()  # first: an end mustn't take a resource that is given for one that isn't offered
        for member in tuple(self._members.values()):
            self._going.add(member.name)
            self._expected[member.name] = member.pool  # if the newer gateway ends, it is offered here again
            member.give()
        with contextlib.suppress(TimeoutError):  # its lock tells the newer gateway that it is still here
            async with asyncio.timeout(GIVING):
                while self._going:
                    await self._left.wait(self._left.version)
        self.claims.rest()
        self.instance.give()

    def _elsewhere(self, name: str) -> Granting | None:
        """The grants of a resource that isn't served here. Raises RequestError."""
        if not self.common.pools.configured(name):
            raise RequestError(f"resource {name} isn't configured any more")
        return self.common.served.granting(name)

    def _pools_elsewhere(self) -> Mapping[str, str]:
        configs = self.common.pools.configs.values()
        return {one.name: self.pool_of(one) for one in configs if one.on != FRONT}

    def _offered_elsewhere(self) -> Mapping[str, OfferedElsewhere]:
        configs, found = self.common.pools.configs, dict[str, OfferedElsewhere]()
        for name, pool in self._pools_elsewhere().items():
            if (granting := self.common.served.granting(name)) is not None:
                found[name] = OfferedElsewhere(granting, pool, partial(_name, name, configs[name].pool))
        return found

    async def look_at_left(self) -> None:
        """Called before a resource is granted on any front. Claims without a record may have its devices until the
        records were compared: by another gateway that has the driver, or by this one. That takes a moment, in which a
        list would have no Healthy device. Raises GatewayError, OSError.
        """
        store = self.claims.store
        if not self.loaded.is_set() and not await store.complete():
            await first(self.loaded.wait(), self.instance.ownership.other.wait_for(bool), within=OWNING)
        await store.peek()
        await first(store.in_doubt.wait_for(lambda some: not some), within=COMPARING)

    def left(self, name: str) -> None:
        """The resource has freed its lock."""
        self._going.discard(name)
        self._left.notify()

    def runs(self, name: str, driver: RunningDriver, standing: Observable[Standing]) -> None:
        """The resource's driver runs, whether or not the resource is this gateway's. ``standing`` is that of the front
        from now on: a resource that begins again leaves none of its subscribers here.
        """
        self._drivers[name], self._standings[name] = driver, standing
        driver.state.subscribe(self.listed.notify)

    async def _warm(self) -> None:
        """Returns once the drivers of all resources have listed, or after WARMING: one that hangs mustn't keep the
        others from an upgrade.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WARMING):
                while not all(self._lists(name) for name in self._expected):
                    await self.listed.wait(self.listed.version)

    def _lists(self, name: str) -> bool:
        driver = self._drivers.get(name)
        return driver is not None and driver.state.value.devices is not None

    def _failed(self, error: Exception) -> None:
        _log.error("DRA can't be served: %s", error)
        self.claims.store.kubelet_is_mute()

    def kubelet_gone(self) -> None:
        """The kubelet ended: nothing is published before the next one has registered the driver."""
        self.instance.kubelet_gone()

    def told_to_end(self) -> None:
        """The process was told to end; it may serve on until another gateway has taken over."""
        self.claims.end()

    def ending(self) -> None:
        """The process is about to end: its slices stay, and the kubelet turns to a successor."""
        self._ending = True
        self.claims.end()
        self.instance.ending()

    async def drain(self, grace: float) -> None:
        """Waits up to ``grace`` seconds for calls under way, at the end of the process."""
        if self._ending:
            await self.instance.drain(grace)

    async def close(self) -> None:
        await self.instance.close()
        await self.server.close()

    # its resources

    def abandon(self) -> None:
        """Leaves the kubelet and lets go of the ownership at once. May be called from any thread."""
        self.instance.abandon()

    def pool_of(self, config: ResourceConfig) -> str:
        """The pool of the resource's slices: its own, or that of all resources that may offer the same hardware."""
        return pool_name(self.us.node, config.pool or config.name)

    def expect(self, config: ResourceConfig) -> None:
        """A resource is going to be offered: its pool is left alone until then."""
        self._expected[config.name] = self.pool_of(config)
        self.claims.store.expect(config.name)
        self.look()

    def forget(self, name: str) -> None:
        """The resource isn't configured any more."""
        if self._expected.pop(name, None) is not None:
            self.claims.store.drop(name)
            self.look()

    def add(self, member: PublishedResource) -> None:
        """Offers the resource. Raises KubeletError if another gateway has the driver meanwhile."""
        if not self.loaded.is_set():
            raise KubeletError("another gateway has taken the driver over")
        self._members[member.name] = member
        self._expected.pop(member.name, None)
        self.look()

    def remove(self, member: PublishedResource) -> None:
        """The resource isn't offered any more; at the end of the process it is left as it is."""
        if self._ending:
            return
        if self._members.pop(member.name, None) is not None or self.claims.offers(member.name, member):
            self.claims.store.drop(member.name)
            if member.name in self._expected:  # it begins again, so claims wait for it
                self.claims.store.expect(member.name)
            self.look()

    def withdraw(self, *, withdrawn: bool) -> None:
        """Offers nothing, or all again. Claims end as ever: before dpgateway is removed, its pods have to."""
        self._withdrawn = withdrawn
        self.look()

    @property
    def withdrawn(self) -> bool:
        """Whether nothing is offered because dpgateway is going to be removed."""
        return self._withdrawn

    def look(self) -> None:
        """Publishes what the resources offer now, and how their devices are."""
        if self._ending or not self.loaded.is_set():
            return
        self.health.look()
        # In an order that doesn't depend on which driver lists first: else a restart writes the slices of pools anew.
        members = [one for _, one in sorted(self._members.items()) if self.offers(one.name)]
        offered = [(one.pool, () if self._withdrawn else one.offered()) for one in members]
        made = pools(self._expected.values(), offered, self.us.driver)
        for name in self._left_out.keys() - made.keys():
            del self._left_out[name]
        self._left_out |= {name: Unpublished(one.left_out, one.unsaid) for name, one in made.items() if one is not None}
        self.publisher.wanted.set({name: None if one is None else contents(one) for name, one in made.items()})
        self._left_out_complaint.say(*[text for one in self._left_out.values() for text in one.devices])

    def counts(self, pool: str, resource: str, id_: str) -> bool:
        """Whether the scheduler knows that this id of a resource is in use, by the counters of the pool."""
        member = self._members.get(resource)
        return member is not None and member.counts(pool, id_)

    def published(self, pool: str) -> int | None:
        """The number of devices in slices of this pool, as last seen; None while that isn't known."""
        if (seen := self.seen.objects.value) is None:
            return None
        specs = [one["spec"] for one in seen.values()]
        return sum(len(spec.get("devices") or ()) for spec in specs if spec["pool"]["name"] == pool)

    # its standing

    def status(self) -> DraStatus:
        found = self.reporting.status({*self._expected, *self._members}, withdrawn=self._withdrawn)
        return replace(found, switches=self.switches())

    def figures(self) -> DraFigures:
        return self.reporting.figures(self.status())

    def _answered(self) -> None:
        answer = self.instance.answer.value
        self._allowed.set(answer is not None and answer.accepted)
        if self._allowed.value:
            self.publisher.owner.registered()
            self._reconciling.look_soon()
        self._stand()

    def _stand(self) -> None:
        answer, published = self.instance.answer.value, self.publisher.state.value
        registered = answer is not None and answer.accepted
        # Ready is who is registered: while the API server is away, another gateway couldn't publish either.
        done = "published" if published.right else "registered"
        state = done if registered else "waiting" if self.instance.asks else "unready"
        failure = self.instance.ownership.other.value or (answer.reason if answer is not None else "") or None
        before = self.standing.value
        since = before.since if before.state == state else timestamp()
        api = "v1" if registered else None
        self.standing.set(
            replace(
                before,
                state=state,
                since=since,
                registered=registered,
                streaming=registered,
                listed=registered,
                api=api,
                failure=failure,
            )
        )
        for one in self._standings.values():
            one.set(self.standing.value)


def _name(resource: str, pool: str | None, id_: str) -> str:
    """The name of a device in slices."""
    return label(key(resource, pool, id_))

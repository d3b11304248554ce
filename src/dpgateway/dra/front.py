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
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpgateway.cdi.own import OwnSpecs
from dpgateway.cluster.account import Account
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.config import Configuration
from dpgateway.dra.beside import OtherFront
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.debts import LeftDebts
from dpgateway.dra.instance import DriverInstance
from dpgateway.dra.members import Members
from dpgateway.dra.owner import AskRuntime, unasked
from dpgateway.dra.preparing import ClaimParts, NodeClaims
from dpgateway.dra.publishing import Publisher, Us
from dpgateway.dra.reconciling import Reconciling
from dpgateway.dra.report import FrontParts, Reporting
from dpgateway.drivers.running import RunningDriver
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import first, retry
from dpgateway.kit.timestamp import timestamp
from dpgateway.node.node import boot
from dpgateway.node.podresources import PodResources
from dpgateway.resource.journal import Journal
from dpgateway.resource.published import DraFigures, DraStatus, SwitchStatus
from dpgateway.resource.resource import Common
from dpgateway.resource.standing import Standing

UNKNOWN = "unknown.dpgateway"
"""The driver's name, if claims are left of a driver that nobody names any more."""
FRONT = "dra"
"""The front's name."""
OWNING, COMPARING = 5.0, 2.0
"""Seconds that a resource of another front waits for the records, and until they were compared."""

_log = bind(__name__)


async def _nothing() -> None:
    """No resource changes its front."""


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
    """The front of a configuration that has a DRA driver, or has that of claims for it. ``node``: its name at the API
    server, and whether the kubelet's directory exists; ``common``: as the device-plugin front has it.
    """
    name, there = node
    us = Us(configuration.dra.driver or UNKNOWN, name)
    cluster = Cluster(ApiServer(Account.of(configuration.cluster), threads=common.threads), specs, runtime)
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
        self.claims, beside = NodeClaims(us.driver, parts, node.boot), OtherFront(us, common)
        store, doubts = self.claims.store, self.claims.store.doubts
        store.journal = lambda name: Journal(common.state_dir, common.directory, name, common.front).load()
        store.owe, store.elsewhere, self.claims.elsewhere = beside.owe, beside.granting, beside.offered
        self._debts = LeftDebts(store, common)
        doubts.others, doubts.in_doubt = beside.pools, common.pools.in_doubt
        doubts.served_before = set(beside.offered())
        common.served.begun.subscribe(store.served.notify)
        socket = node.pod_resources or root / "pod-resources" / "kubelet.sock"
        asks = PodResources(socket, common.threads)
        allocating = common.served.allocating
        self._reconciling = Reconciling(self.claims, asks, root / "pods", allocating=allocating)
        common.served.begun.subscribe(self._reconciling.look_for_lost)
        self.loaded = asyncio.Event()
        """Set once the records of earlier gateways are known."""
        self.server, self._allowed = cluster.server, Observable(False)
        seen = WatchedObjects(cluster.server, ObjectKind.SLICE, us.fields, Complaint(_log, "slices aren't seen: %s"))
        complaint = Complaint(_log, "slices aren't as they should be: %s")
        self.publisher = Publisher(cluster.server, us, seen, self._allowed, complaint)
        self.publisher.owner.runtime = cluster.runtime
        self.publisher.state.subscribe(self._stand)
        self.seen = seen
        self.members = Members(us, self.claims, self.loaded, self.publisher.wanted.set)
        doubts.why.subscribe(self.members.look)
        self.instance = DriverInstance(root, us.driver, self.claims, self.members.health, self.members.warm)
        self.instance.answer.subscribe(self._answered)
        self.instance.needed = lambda: bool(self.members.names or self.claims.store.records)
        self.instance.ownership.other.subscribe(self._stand)
        self.instance.failure.subscribe(self._stand)
        self.standing = Observable(Standing(FRONT, "unready", timestamp()))
        self._standings: dict[str, Observable[Standing]] = {}
        self.switches: Callable[[], tuple[SwitchStatus, ...]] = tuple
        """The groups of resources that change their front."""
        self.owned: Callable[[], Awaitable[None]] = _nothing
        """Called once the driver is this gateway's, and before anything is published. Raises GatewayError, OSError."""
        self.reporting = Reporting(
            FrontParts(
                self.standing,
                self.instance.ownership,
                self.claims,
                self.publisher,
                seen,
                cluster.server,
                self.members.left_out,
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
            self.members.look()  # also without a resource: slices of earlier ones go
            async with asyncio.TaskGroup() as group:
                # It needs no kubelet that knows DRA.
                working = [group.create_task(self._debts.run(), name="tell other fronts what is owed")]
                await retry(self.instance.serve, self._failed)
                self.claims.store.doubts.kubelet_is_mute(mute=False)
                self._stand()
                working += [
                    group.create_task(self.seen.run(), name="watch slices"),
                    group.create_task(self.publisher.run(), name="publish slices"),
                    group.create_task(self._reconciling.run(), name="reconcile claims"),
                    group.create_task(self.instance.keep(), name="keep the driver registered"),
                ]
                await self.instance.until_given()
                for one in working:
                    one.cancel()
            # All resources free their locks, then the driver is given. What is published stays.
            self.loaded.clear()
            self.claims.ends.rest()  # first: an end mustn't take a resource that is given for one that isn't offered
            await self.members.give()
            self.claims.rest()
            self.instance.give()

    async def look_at_left(self) -> None:
        """Called before a resource is granted on any front. Claims without a record may have its devices until the
        records were compared: by another gateway that has the driver, or by this one. That takes a moment, in which a
        list would have no Healthy device. Raises GatewayError, OSError.
        """
        store = self.claims.store
        if not self.loaded.is_set() and not await store.doubts.complete():
            await first(self.loaded.wait(), self.instance.ownership.other.wait_for(bool), within=OWNING)
        await store.peek()
        await first(store.doubts.in_doubt.wait_for(lambda some: not some), within=COMPARING)

    def runs(self, name: str, driver: RunningDriver, standing: Observable[Standing]) -> None:
        """The resource's driver runs, whether or not the resource is this gateway's. ``standing`` is that of the front
        from now on: a resource that begins again leaves none of its subscribers here.
        """
        self._standings[name] = standing
        self.members.runs(name, driver)

    def _failed(self, error: Exception) -> None:
        self.instance.failed(error)
        self.claims.store.doubts.kubelet_is_mute()

    def told_to_end(self) -> None:
        """The process was told to end; it may serve on until another gateway has taken over."""
        self.claims.waits.end()

    def ending(self) -> None:
        """The process is about to end: its slices stay, and the kubelet turns to a successor."""
        self.members.frozen = True
        self.claims.waits.end()
        self.instance.ending()

    async def drain(self, grace: float) -> None:
        """Waits up to ``grace`` seconds for calls under way, at the end of the process."""
        if self.members.frozen:
            await self.instance.drain(grace)

    async def close(self) -> None:
        await self.instance.close()
        await self.server.close()

    def abandon(self) -> None:
        """Leaves the kubelet and lets go of the ownership at once. May be called from any thread."""
        self.instance.abandon()

    # its standing

    def status(self) -> DraStatus:
        found = self.reporting.status(self.members.names, withdrawn=self.members.withdrawn)
        return replace(found, switches=self.switches())

    def figures(self) -> DraFigures:
        return self.reporting.figures(self.status())

    def _answered(self) -> None:
        answer = self.instance.answer.value
        self._allowed.set(answer is not None and answer.accepted)
        if answer is not None:
            self.publisher.owner.registered()
        if self._allowed.value:
            self._reconciling.look_soon()
        self._stand()

    def _stand(self) -> None:
        answer, published = self.instance.answer.value, self.publisher.state.value
        registered = answer is not None and answer.accepted
        # Ready is who is registered: while the API server is away, another gateway couldn't publish either.
        done = "published" if published.right else "registered"
        state = done if registered else "waiting" if self.instance.asks else "unready"
        refused = answer.reason if answer is not None else ""
        failure = self.instance.ownership.other.value or refused or self.instance.failure.value or None
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

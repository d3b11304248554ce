"""Prepares claims for the kubelet, and answers when they end.

Theory of operation. A claim is prepared once, whatever pods use it and however often the kubelet asks: the answer comes
from its record, unless the API server says that it was allocated anew. What is on disk before each step begins
(``claims.records``) says what another gateway, or this one after a kill, has to do::

    Prepare     record "preparing" -> driver: allocate, prepare -> CDI specs -> record "prepared" -> answer
    Unprepare   record "ending" -> no CDI specs -> released to the driver -> no record -> answer

    a Prepare finds               and
    no record                     chooses devices, and grants them
    preparing                     grants the record's devices
    prepared, in an earlier boot  grants the record's devices again
    prepared                      answers from the record, if the claim is allocated to its devices still
    prepared, for other devices   ends the record, then chooses
    ending                        ends the record, then chooses

- Of the records before ``prepared`` another takes the place if the claim has other devices by now, and what isn't its
  own any more is released. A resource that isn't offered here would forget that, so then the record ends first.
- Calls of one claim come one after the other (a lane), and go on if the kubelet stops waiting, after 45 s: its next
  call joins them. Those of different claims don't wait for one another.
- A Prepare waits for what may come soon, rather than being refused (``waiting``).
- Unprepare is answered once the driver has released the devices (``ending``).
- Unprepare of a claim without a record succeeds, whatever the API server says of it: it needs no API server.
- While a record is damaged, no other claim gets devices (``claims.doubts``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from dpgateway.cdi.own import OwnSpecs
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.dra.claims.choosing import OfferedElsewhere, same
from dpgateway.dra.claims.files import ClaimDisk, ClaimFiles
from dpgateway.dra.claims.reading import Allocated, Asked, allocated
from dpgateway.dra.claims.records import ClaimRecord, Phase, is_of_claim
from dpgateway.dra.claims.store import ClaimStore, Left
from dpgateway.dra.ending import ClaimEnds
from dpgateway.dra.extended import ExtendedResources
from dpgateway.dra.giving import ClaimGrants
from dpgateway.dra.waiting import PATIENCE, ClaimWaits
from dpgateway.errors import GatewayError, RequestError
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads
from dpgateway.node.sandboxes import END_WITHIN, Running, outlasting

SOON = 2.0
"""Seconds that the API server has to say whether a prepared claim is allocated as it was."""


class ClaimParts(NamedTuple):
    """What all claims need."""

    server: ApiServer
    files: ClaimFiles
    specs: OwnSpecs
    threads: Threads
    left: Left
    log: logging.LoggerAdapter[logging.Logger]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The kubelet's answer for one device."""

    request: str
    pool: str
    device: str
    cdi: tuple[str, ...]
    share_id: str


class NodeClaims:
    """The claims of one driver on this node. Used from the event loop."""

    def __init__(self, driver: str, parts: ClaimParts, boot: str, patience: float = PATIENCE) -> None:
        """``boot``: the node's boot id."""
        self.driver, self.boot, self.parts = driver, boot, parts
        self._log, self._server = parts.log, parts.server
        self.store = ClaimStore(ClaimDisk(parts.files, parts.threads), boot, parts.left, parts.log)
        self.ends = ClaimEnds(self.store, parts.specs, boot, patience, parts.log)
        self.lanes = KeyedLanes("claim")
        self.calls = CallStats()
        """The kubelet's calls, a claim each."""
        self.refused: Observable[tuple[str, float] | None] = Observable(None)
        """Why the last claim that wanted devices got none, and since when on the monotonic clock."""
        self.extended = ExtendedResources(parts.server)
        self.elsewhere: Callable[[], Mapping[str, OfferedElsewhere]] = dict
        """The resources that another front serves."""
        self.running: Running = _nobody_knows
        """Tells which pods run."""
        self.waits = ClaimWaits(self.store, parts.server, patience)
        """What calls wait for."""
        self._grants = ClaimGrants(self.store, parts.specs)

    async def load(self) -> None:
        """Reads the records of earlier gateways, and goes on with the ends that they have begun. The resources that
        are going to be served are expected already. Raises GatewayError, OSError.
        """
        await self.store.load()
        self.ends.resume()

    def may_have(self, ids: Sequence[str]) -> bool:
        """Whether a claim may have the CDI spec of these ids, although no record here says so."""
        return self.store.doubts.unsure and is_of_claim(ids)

    def rest(self) -> None:
        """The claims are another gateway's from now on, until :meth:`load`."""
        self.ends.rest()
        self.store.rest()

    async def leave(self, seconds: float) -> None:
        """Leaves the claims to another gateway, at the end of the process. Calls under way have so many seconds to
        bring their records up to date: what they write later might be less than that gateway has written.
        """
        self.ends.rest()
        if running := self.lanes.running:
            await asyncio.wait(running, timeout=seconds)

    async def turned_over(self) -> None:
        """Returns once the present calls and ends are over, or hang; others may be under way by then."""
        if running := self.lanes.running | self.ends.running | self.store.disk.changing:
            await asyncio.wait(running)

    async def idle(self) -> None:
        """Returns once no call is under way, and no driver is releasing what a claim had, but one that hangs; and no
        file is changed any more, which another gateway may have changed by then.
        """
        while running := self.lanes.running | self.ends.running | self.store.disk.changing:
            await asyncio.wait(running)

    # the kubelet's calls

    async def prepare(self, asked: Iterable[Asked]) -> Mapping[str, tuple[Prepared, ...] | str]:
        """The devices of each claim, or why it has none, by uid."""
        return await self._each(asked, self._prepare)

    async def unprepare(self, asked: Iterable[Asked]) -> Mapping[str, tuple[Prepared, ...] | str]:
        """An empty tuple for each claim that has ended, or why it hasn't, by uid."""
        return await self._each(asked, self._unprepare)

    async def _each(
        self, asked: Iterable[Asked], call: Callable[[Asked], Awaitable[tuple[Prepared, ...]]]
    ) -> Mapping[str, tuple[Prepared, ...] | str]:
        calls = {one.uid: self.lanes.call(one.uid, partial(call, one)) for one in asked}
        return dict(zip(calls, await asyncio.gather(*map(_answer, calls.values())), strict=True))

    # prepare

    async def _prepare(self, asked: Asked) -> tuple[Prepared, ...]:
        began = time.monotonic()
        record = self.store.records.get(asked.uid)
        over = record is not None and record.phase is Phase.ENDING
        if record is not None and record.phase is Phase.PREPARED and record.boot == self.boot:
            if (still := await self._as_now(record, asked)) is not None:
                if still.pods != record.pods:
                    await self.store.write(still)
                self.store.records[asked.uid] = still  # another object: decisions about the old one are void
                return _prepared(still)
            over = True
        if record is not None and over:
            await self._end_before(record)
            record = None

        # The scheduler's choice is read anew for each attempt that isn't finished, but devices once chosen stay.
        wanted = allocated(await self.waits.read(asked), self.driver, asked)
        if record is not None and not (same(record.given, wanted) or record.resources <= self.store.offerings.keys()):
            await self._former_pods_end(record, wanted)
            await self._end_before(record)
            return await self._prepare(asked)
        resources = await self.extended.asked(wanted) if wanted.classes else {}
        damaged = asked.uid in self.store.doubts.damaged
        given = await self.waits.devices(wanted, record)
        if given is None:  # its record was lost, and has been made again meanwhile
            return await self._prepare(asked)

        # No await since the choice: the record reserves the ids.
        new = ClaimRecord(
            asked.uid, asked.namespace, asked.name, Phase.PREPARING, self.boot, given, wanted.pods, driver=self.driver
        )
        if resources:
            new = new.asking(resources)
        try:
            await self.store.write(new)
            answered = [replace(one, cdi=await self._grants.give(one, new)) for one in new.given]
            new = replace(new, phase=Phase.PREPARED, given=tuple(answered), since=int(time.time()))
            await self.store.write(new)
        except BaseException:
            self.ends.outlast(new)
            # A claim that had its devices before, in an earlier boot, keeps them for the next attempt; so does one
            # whose record was damaged: its containers may run.
            if record is not None:
                await self.store.write(record)
            elif not damaged:
                await self.ends.undo(new)
            raise
        extra = {**new.fields, "seconds": round(time.monotonic() - began, 6)}
        devices = "device" if extra["count"] == 1 else "devices"
        self._log.info("prepared %s: %d %s", new, extra["count"], devices, extra=extra)
        return _prepared(new)

    async def _end_before(self, record: ClaimRecord) -> None:
        """Ends what the claim had. Raises RequestError if that takes its time."""
        await self.ends.end(record)
        if record.uid in self.store.records:
            why = "is ending" if record.phase is Phase.ENDING else "was allocated anew"
            raise RequestError(f"{record} {why}: its devices are still being released")

    async def _as_now(self, record: ClaimRecord, asked: Asked) -> ClaimRecord | None:
        """The record of a prepared claim, with the pods that it is for by now; None if the claim isn't allocated to its
        devices. If the API server doesn't answer, it is taken for unchanged. A kubelet that has started asks again for
        the next pod of a claim, whose earlier pod may have been deleted by force meanwhile, and the claim's devices
        given to others. Raises RequestError while a pod runs that the claim isn't for any more.
        """
        try:
            async with asyncio.timeout(SOON):
                found = await self._server.get(ObjectKind.CLAIM, asked.name, asked.namespace)
                now = allocated(found, self.driver, asked)
        except (GatewayError, TimeoutError):
            return replace(record)
        await self._former_pods_end(record, now)
        if not same(record.given, now):
            return None
        return replace(record, pods=tuple(dict.fromkeys((*record.pods, *now.pods))))

    # unprepare

    async def _unprepare(self, asked: Asked) -> tuple[Prepared, ...]:
        record = self.store.records.get(asked.uid)
        if record is not None:
            await self._pods_end(record, frozenset(uid for uid, _ in record.pods), "end")
            await self.ends.end(record)
        elif (damaged := self.store.doubts.damaged.get(asked.uid)) is not None:
            await self.ends.end_damaged(damaged)
        return ()

    async def _former_pods_end(self, record: ClaimRecord, now: Allocated) -> None:
        """As :meth:`_pods_end`, of the pods that the claim isn't for any more."""
        before = frozenset(uid for uid, _ in record.pods).difference(uid for uid, _ in now.pods)
        await self._pods_end(record, before, "be given to its next pod")

    async def _pods_end(self, record: ClaimRecord, pods: frozenset[str], what: str) -> None:
        """Waits for the containers of these pods, before the claim may ``what``. Once a minute a kubelet asks for the
        end of the claims of pods that it doesn't know any more (reconcileLoop in pkg/kubelet/cm/dra/manager.go): also
        of one that was deleted by force and still has its grace period, which would share its device with the next pod
        (seen on 1.36 and 1.37). Raises RequestError; the kubelet asks again.
        """
        if running := await outlasting(self.running, lambda: pods, END_WITHIN):
            which = ", ".join(sorted(name for uid, name in record.pods if uid in running))
            raise RequestError(f"{record} can't {what} yet: its pod still runs ({which}); was that deleted by force?")


async def _nobody_knows(_: frozenset[str]) -> None:
    return None


async def _answer(call: asyncio.Future[tuple[Prepared, ...]]) -> tuple[Prepared, ...] | str:
    try:
        return await asyncio.shield(call)
    except (GatewayError, OSError) as error:
        return str(error)


def _prepared(one: ClaimRecord) -> tuple[Prepared, ...]:
    """The CDI names of a request belong to its first device: a container gets all devices of a request, or none."""
    return tuple(
        Prepared(given.request, given.pool, device, () if number else given.cdi, share)
        for given in one.given
        for number, (device, share) in enumerate(given.devices)
    )

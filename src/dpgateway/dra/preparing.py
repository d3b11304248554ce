"""Prepares claims for the kubelet, and ends them.

Theory of operation. A claim is prepared once, whatever pods use it and however often the kubelet asks: the answer comes
from its record. What is on disk before each step begins (``claims.records``) says what another gateway, or this one
after a kill, has to do::

    Prepare     record "preparing" -> driver: allocate, prepare -> CDI specs -> record "prepared" -> answer
    Unprepare   record "ending" -> released to the driver -> no record -> answer

- Calls of one claim come one after the other (a lane), and go on if the kubelet stops waiting, after 45 s: its next
  call joins them. Those of different claims don't wait for one another.
- The kubelet asks again only 45 to 85 s after a refusal (seen on 1.37). So a Prepare waits up to PATIENCE for a device
  that another claim has: of a pod that was deleted by force the scheduler gives it away before the claim has ended.
- The pod isn't terminal before Unprepare is answered, and the scheduler gives the device away 20 ms later (seen on
  1.37). So Unprepare is answered once the driver has released the devices, or after PATIENCE, with the devices
  withheld: a driver that hangs must not keep pods from ending.
- Unprepare of a claim without a record succeeds, whatever the API server says of it: it needs no API server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from dpgateway.cdi.own import OwnSpecs
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.reading import Allocated, Result, allocated
from dpgateway.dra.claims.records import ClaimRecord, Damaged, Given, Phase
from dpgateway.errors import CdiError, GatewayError, RequestError
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation
from dpgateway.resource.front import Usage
from dpgateway.resource.granting import Granting, Terms

T = TypeVar("T")

API = "DRA"
"""The name of this API in the log."""
PATIENCE = 40.0
"""Seconds that a call waits for the driver, or for another claim's end. The kubelet waits 45
(pkg/kubelet/cm/dra/plugin)."""
DISK = 5.0
"""Seconds that the disk has to answer."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Taken(RequestError):
    """A device isn't free, but may be soon."""

    def __init__(self, text: str, usage: Usage) -> None:
        super().__init__(text)
        self.usage = usage


class Asked(NamedTuple):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


class Offering(Protocol):
    """A resource as claims see it."""

    @property
    def granting(self) -> Granting: ...

    @property
    def usage(self) -> Usage: ...

    def id_of(self, pool: str, device: str) -> str | None:
        """The id of the device that a slice names so, published now or not; None if it isn't this resource's."""


class ClaimParts(NamedTuple):
    """What all claims need."""

    server: ApiServer
    files: ClaimFiles
    specs: OwnSpecs
    threads: Threads
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
        self._driver, self._boot, self._log, self._patience = driver, boot, parts.log, patience
        self._server, self._files, self._specs, self._threads = parts.server, parts.files, parts.specs, parts.threads
        self._offerings: dict[str, Offering] = {}
        self.records: dict[str, ClaimRecord] = {}
        """By uid. As on disk, but for a write that failed."""
        self.damaged: tuple[Damaged, ...] = ()
        self._lanes: dict[str, asyncio.Future[tuple[Prepared, ...]]] = {}
        """The last call of each claim that has one under way."""
        self._endings: set[asyncio.Task[None]] = set()
        """The ends of claims that wait for a driver; kept, because the event loop keeps no tasks."""

    async def load(self) -> None:
        """Reads the records of earlier gateways. Raises GatewayError, OSError."""
        found, self.damaged = await self._on_disk(self._files.all)
        self.records = {one.uid: one for one in found}
        for one in self.damaged:
            self._log.error("%s: not a claim's record, so what it stands for can't be freed: %s", one.file, one.why)
        self._tell()

    def add(self, resource: str, offering: Offering) -> None:
        """From now on claims may get devices of the resource."""
        self._offerings[resource] = offering
        self._tell(resource, recalled=True)

    def drop(self, resource: str) -> None:
        self._offerings.pop(resource, None)

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
        calls = {one.uid: self._in_lane(one.uid, partial(call, one)) for one in asked}
        return dict(zip(calls, await asyncio.gather(*map(_answer, calls.values())), strict=True))

    def _in_lane(
        self, uid: str, call: Callable[[], Awaitable[tuple[Prepared, ...]]]
    ) -> asyncio.Future[tuple[Prepared, ...]]:
        """Calls once the claim's earlier call is over. The caller may stop waiting; the call goes on."""
        before = self._lanes.get(uid)

        async def after() -> tuple[Prepared, ...]:
            if before is not None:
                await asyncio.wait({before})
            return await call()

        lane = asyncio.create_task(after(), name=f"claim {uid}")
        self._lanes[uid] = lane
        lane.add_done_callback(lambda _: self._lanes.pop(uid) if self._lanes.get(uid) is lane else None)
        return lane

    # prepare

    async def _prepare(self, asked: Asked) -> tuple[Prepared, ...]:
        record = self.records.get(asked.uid)
        if record is not None and record.phase is Phase.ENDING:
            raise RequestError(f"{record} is ending: its devices are being released")
        if record is not None and record.phase is Phase.PREPARED and record.boot == self._boot:
            return _prepared(record)

        # The scheduler's choice is read anew for each attempt that isn't finished, but devices once chosen stay.
        found = await self._server.get(ObjectKind.CLAIM, asked.name, asked.namespace)
        wanted = allocated(found, self._driver, asked)
        given = record.given if record is not None and _same(record, wanted) else await self._free(wanted)
        new = ClaimRecord(asked.uid, asked.namespace, asked.name, Phase.PREPARING, self._boot, given, wanted.pods)
        try:
            await self._write(new)
            for one in given:
                names = await self._give(one)
                new = replace(new, given=tuple(replace(g, cdi=names) if g is one else g for g in new.given))
            new = replace(new, since=int(time.time()))
            await self._write(new.at(Phase.PREPARED, self._boot))
        except BaseException:
            # A claim that had its devices before, in an earlier boot, keeps them for the next attempt.
            await (self._forget(new) if record is None else self._write(record))
            raise
        self._log.info("prepared %s: %d devices", new, sum(len(one.devices) for one in given))
        return _prepared(new)

    async def _free(self, wanted: Allocated) -> tuple[Given, ...]:
        """The ids for each request of the claim, once they are free. Raises RequestError."""
        end = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                return self._chosen(wanted)
            except Taken as error:
                try:
                    async with asyncio.timeout_at(end):
                        await error.usage.wait(error.usage.version)
                except TimeoutError:
                    raise error from None

    def _chosen(self, wanted: Allocated) -> tuple[Given, ...]:
        """The ids for each request of the claim. Raises RequestError; Taken if some aren't free."""
        by_request: dict[tuple[str, str, str], list[Result]] = {}
        for one in wanted.results:
            if one.admin:
                raise RequestError(
                    f"{wanted}: request {one.request} asks for adminAccess, which {self._driver} can't give"
                )
            by_request.setdefault((one.request, self._resource_of(wanted, one), one.pool), []).append(one)
        found, taken = [], set[str]()
        for (request, resource, pool), some in by_request.items():
            ids = tuple([id_ for one in some for id_ in self._ids(wanted, resource, one, taken)])
            devices = tuple([(one.device, one.share_id) for one in some])
            found.append(Given(request, resource, pool, devices, ids))
        return tuple(found)

    def _resource_of(self, wanted: Allocated, one: Result) -> str:
        for name, offering in self._offerings.items():
            if offering.id_of(one.pool, one.device) is not None:
                return name
        raise RequestError(f"{wanted}: no resource here has a device {one.device} in pool {one.pool}")

    def _ids(self, wanted: Allocated, resource: str, one: Result, taken: set[str]) -> tuple[str, ...]:
        """As many free ids of the device as the claim gets shares of it; marks them as ``taken``."""
        offering = self._offerings[resource]
        device, used = offering.id_of(one.pool, one.device), offering.usage.value.last_known
        all_ = offering.granting.inventory.ledger.ids(device or "")
        free = [id_ for id_ in all_ if id_ not in used and id_ not in taken][: one.shares]
        if len(free) < one.shares:
            who = offering.usage.value.last_holder(next(iter(all_), ""))
            text = f"device {device} of {resource} has {len(free)} of {one.shares} shares free: {who}"
            raise Taken(f"{wanted}: {text}", offering.usage)
        taken.update(free)
        return tuple(free)

    async def _give(self, one: Given) -> tuple[str, ...]:
        """The CDI names of what the driver gives. Raises GatewayError; then nothing is given."""
        offering = self._offerings.get(one.resource)
        if offering is None:
            raise RequestError(f"resource {one.resource} isn't served here any more")
        # The claim's own record holds the ids already: that is no obstacle.
        terms = Terms(API, partial(self._deliver, one), repeats=True, prepares=True)
        return (await offering.granting.grant(one.ids, terms)).cdi_devices

    async def _deliver(self, one: Given, allocation: Allocation) -> Allocation:
        """Puts all that a container gets into a CDI spec, because a claim's answer has only names."""
        granting = self._offerings[one.resource].granting
        if allocation.annotations:
            text = "DRA has no annotations: containers don't get them"
            granting.log_once(logging.WARNING, text)
        try:
            return await self._on_disk(partial(self._specs.write, one.resource, one.ids, allocation))
        except CdiError as error:
            raise RequestError(f"resource {one.resource}: {error}") from error

    # unprepare

    async def _unprepare(self, asked: Asked) -> tuple[Prepared, ...]:
        record = self.records.get(asked.uid)
        if record is None:
            return ()
        await self._write(record.at(Phase.ENDING, self._boot))
        # The kubelet asks no more once it has its answer, so the rest doesn't depend on it.
        ending = asyncio.create_task(self._end(record), name=f"end of {record}")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        if not (await asyncio.wait({ending}, timeout=self._patience))[0]:
            text = "%s ends, but the driver hasn't released its devices for %.0f s: they stay withheld until it has"
            self._log.warning(text, record, self._patience)
        return ()

    async def _end(self, record: ClaimRecord) -> None:
        """Forgets the claim once its devices are released."""
        await asyncio.gather(*map(self._released, record.given))
        await self._forget(record)
        self._log.info("unprepared %s", record)

    async def _released(self, one: Given) -> None:
        """Returns once the driver was told that these devices are free; at once if there is no resource to tell."""
        if (offering := self._offerings.get(one.resource)) is not None:
            await offering.usage.wait_for(lambda in_use: in_use.freed.isdisjoint(one.ids))

    # the records

    async def _write(self, new: ClaimRecord) -> None:
        """Reserves the ids in the same step of the event loop. Raises RequestError: what isn't on disk isn't done."""
        self.records[new.uid] = new
        self._tell()
        try:
            await self._on_disk(partial(self._files.write, new))
        except OSError as error:
            raise RequestError(f"{new}: its record can't be written to {self._files.folder}: {error}") from error

    async def _forget(self, old: ClaimRecord) -> None:
        self.records.pop(old.uid, None)
        self._tell()
        try:
            await self._on_disk(partial(self._files.remove, old.uid))
        except OSError as error:
            self._log.error("%s: its record can't be removed from %s: %s", old, self._files.folder, error)

    def _tell(self, only: str = "", *, recalled: bool = False) -> None:
        """Tells the resources what their claims hold now."""
        for name, offering in self._offerings.items():
            if only in ("", name) and isinstance(value := offering.usage.value, ClaimHoldings):
                offering.usage.set(value.told(self.records.values(), recalled=recalled))

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await self._threads.call_within("claims", work, DISK)


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


def _same(record: ClaimRecord, wanted: Allocated) -> bool:
    """Whether the claim still has the devices of its record."""
    had = {(one.request, one.pool, device, share) for one in record.given for device, share in one.devices}
    return had == {(one.request, one.pool, one.device, one.share_id) for one in wanted.results}

"""The records in memory and on disk, and the resources that are told what their claims hold.

A record in memory reserves its ids in the same step of the event loop; what isn't on disk isn't done. So memory may be
ahead of the disk, never behind it. What the disk has refused is written at the next comparison.

Records may be lost: ``state_dir`` was new or is empty, or a person removed one. Until they were compared with the
kubelet's claims (``reconciling``), and as long as the kubelet has a claim without a record, claims are in doubt, too.

Claims without a record may have what another front offers by now: as long as there may be such claims, it gives nothing
of the resources in question (``in_doubt``), unless no kubelet can tell of claims.

A file that is no record stands for devices that nobody knows. While there is one, all that isn't in a record is in
doubt: no claim gets devices, and ids that only the journals know stay in use. It is settled by its claim's end, by
another preparation of its claim, or by a person who removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dpgateway.dra.claims.choosing import Offering
from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.records import ClaimRecord, Damaged, Given, Phase
from dpgateway.errors import GatewayError, KubeletError, RequestError
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads
from dpgateway.resource.front import Behind, InUse, Unreleased, Usage
from dpgateway.resource.granting import Granting
from dpgateway.resource.orphans import Owe

T = TypeVar("T")
Left = Observable[Mapping[str, InUse]]
"""What claims hold of resources that this front doesn't offer (resource/pools.py)."""

DISK = 5.0
"""Seconds that the disk has to answer."""


def _nowhere(resource: str) -> None:
    """There is no other front."""
    raise RequestError(f"resource {resource} isn't served here any more")


class ClaimStore:
    """The records of all claims of a node. Used from the event loop."""

    def __init__(
        self,
        files: ClaimFiles,
        threads: Threads,
        boot: str,
        left: Left,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``boot``: the node's boot id."""
        self._files, self._threads, self._boot, self._log = files, threads, boot, log
        self.by_resource: dict[str, Usage] = {}
        """What claims hold of each resource that is offered, or that a claim has devices of."""
        self._left, self._loaded = left, False
        self._changes = KeyedLanes("files of claim")
        self.offerings: dict[str, Offering] = {}
        """The resources that are served, by name."""
        self.journal: Callable[[str], Mapping[str, Unreleased]] = lambda _: {}
        """Reads a resource's journal, on a thread; raises KubeletError, OSError."""
        self.owe: Owe = lambda *_: False
        """Of a resource that another front offers by now."""
        self.elsewhere: Callable[[str], Granting | None] = _nowhere
        """Of a resource that another front serves; None if it is going to. Raises RequestError if it isn't configured.
        """
        self._told: dict[tuple[str, str], dict[str, bool]] = {}
        """`_told` contains whether a driver is told that an id is free, as far as that is decided, keyed by the claim's
        uid and resource.
        """
        self._remembered: dict[str, Mapping[str, Unreleased]] = {}
        """`_remembered` contains the journals as they were when the records were read, keyed by resource."""
        self.expected: set[str] = set()
        """The names of the resources that are going to be served."""
        self.served = Signal()
        """Notified when a resource has come or gone."""
        self.records: dict[str, ClaimRecord] = {}
        """By uid. As on disk, but for a write that failed: ``_unwritten`` contains the claims of these, by uid."""
        self._unwritten: set[str] = set()
        self.damaged: tuple[Damaged, ...] = ()
        self.others: Callable[[], Mapping[str, str]] = dict
        """The pool in slices of each resource that another front offers, by the resource's name."""
        self.served_before: Collection[str] = ()
        """Those that were served before claims were: these aren't taken away until the first comparison."""
        self.in_doubt = Observable(frozenset[str]())
        """Those of them that claims without a record may have devices of."""
        self.compared = False
        """Whether the records were compared with the kubelet's claims, by this gateway or an earlier one; ``_saved``:
        whether the disk says so.
        """
        self._saved = False
        self.lost, self._lost_pools, self._blind = "", frozenset[str](), False
        """Why records are missing, empty if none is, as far as known; the pools of their devices; and whether there is
        no kubelet that can tell.
        """
        self.gone: frozenset[str] = frozenset()
        """The claims, by uid, whose pods are gone for the scheduler, but may still have running containers."""
        self.recalled = ""
        """The claim, by uid, whose record is being made again: a call that waits for that gives way."""
        self.doubt = Observable("")
        """Why claims without a record may have devices; empty if none can."""

    async def peek(self) -> None:
        """Reads what claims hold of resources that aren't offered here, before the records are this gateway's. Such a
        resource has a lock of its own: with it, nobody gives more of it away. Raises GatewayError, OSError.
        """
        if not self._loaded:
            found, _ = await self.on_disk(self._files.all)
            await self._remember(found)
            names = {given.resource for one in found for given in one.given} - self.expected
            empty = ClaimHoldings(boot=self._boot)
            self._leave({name: replace(empty, resource=name).told(found, recalled=True) for name in names})
        self._doubt_others()

    async def complete(self) -> bool:
        """Whether some gateway has compared the records with the kubelet's claims. Raises GatewayError."""
        return await self.on_disk(lambda: self._files.complete)

    async def load(self) -> None:
        """Reads the records of earlier gateways. Raises GatewayError, OSError."""
        found, self.damaged = await self.on_disk(self._files.all)
        self.compared = self._saved = await self.on_disk(lambda: self._files.complete)
        await self._remember(found)
        self.records = {one.uid: one for one in found}
        for one in self.damaged:
            text = "%s: not a claim's record, so what it stands for can't be freed: %s"
            self._log.error(text, self._files.folder / one.file, one.why)
        self._loaded, self._blind = True, False  # what has failed until now may have been the disk
        for name in {given.resource for one in found for given in one.given}:
            self.usage(name)
        self._tell(recalled=True)

    async def _remember(self, found: Iterable[ClaimRecord]) -> None:
        """Reads the journals of the resources that these claims have devices of: the hardware may be offered under
        another name by now. Raises GatewayError.
        """
        for name in sorted({given.resource for one in found for given in one.given}):
            try:
                self._remembered[name] = await self.on_disk(partial(self.journal, name))
            except (KubeletError, OSError) as error:
                self._log.warning("the hardware that claims have of %s isn't known: %s", name, error)

    def rest(self) -> None:
        """The records are another gateway's: what claims hold isn't known any more."""
        self._loaded = False
        for usage in self.by_resource.values():
            if isinstance(usage.value, ClaimHoldings):
                usage.set(replace(usage.value, claims=None, looked=False))

    def usage(self, resource: str) -> Usage:
        """What claims hold of the resource, kept up to date."""
        if resource not in self.by_resource:
            self.by_resource[resource] = Usage(ClaimHoldings(resource=resource, boot=self._boot))
            self._tell(resource, recalled=True)
        return self.by_resource[resource]

    def untold(self, old: ClaimRecord, resource: str) -> frozenset[str] | None:
        """The ids of a claim that is ending, of a resource that isn't offered here, of which no driver will be told.
        Those that another front offers by now it has to release: it is told of them once. None as long as no driver
        runs there, as at the gateway's start.
        """
        told = self._told.setdefault((old.uid, resource), {})
        in_use, remembered = self.usage(resource).value, self._remembered.get(resource, {})
        given = in_use.remembered(remembered).unreleased
        for id_ in frozenset(old.of(resource)) - told.keys():
            answer = self.owe(resource, id_, given[id_]) if id_ in given else False
            if answer is not None:
                told[id_] = answer
        ids = frozenset(old.of(resource))
        return frozenset(id_ for id_ in ids if not told[id_]) if ids <= told.keys() else None

    def recall(self, resource: str, given: Mapping[str, Unreleased]) -> None:
        """A claim whose record is made again has these ids, of a resource that another front offers."""
        self._remembered[resource] = {**self._remembered.get(resource, {}), **given}
        self.usage(resource)

    @contextlib.contextmanager
    def recalling(self, uid: str) -> Iterator[None]:
        """The claim's record is being made again meanwhile."""
        self.recalled = uid
        self.doubt.notify()
        self.served.notify()
        try:
            yield
        finally:
            self.recalled = ""

    def serves(self, resource: str) -> bool:
        """Whether it has listed, on whichever front. Raises RequestError if it isn't configured."""
        if (offering := self.offerings.get(resource)) is not None:
            return offering.granting.inventory.list.value is not None
        return self.elsewhere(resource) is not None

    def behind(self, one: Given) -> Behind:
        """The hardware of what a claim had of a resource, as far as it is known, by id."""
        given = self.usage(one.resource).value.remembered(self._remembered.get(one.resource, {})).unreleased
        return {id_: given[id_].hardware if id_ in given else frozenset() for id_ in one.ids}

    def expect(self, resource: str) -> None:
        """The resource is going to be served."""
        self.expected.add(resource)

    def add(self, resource: str, offering: Offering) -> None:
        """From now on claims may get devices of the resource."""
        self.offerings[resource], self.by_resource[resource] = offering, offering.usage
        self._tell(resource, recalled=True)
        self.served.notify()

    def drop(self, resource: str) -> None:
        """It is no longer offered here. What claims have of it counts until they end; what it hasn't released is in its
        journal.
        """
        self.expected.discard(resource)
        gone = self.offerings.pop(resource, None)
        self._tell(resource)
        if gone is not None:
            gone.usage.notify()
        self.served.notify()

    async def write(self, new: ClaimRecord, *, recalled: bool = False) -> None:
        """Reserves the ids in the same step of the event loop. ``recalled``: the drivers have given them before. Raises
        RequestError: what isn't on disk isn't done.
        """
        self.records[new.uid] = new
        if new.phase is Phase.ENDING:  # owed to the drivers before it counts as free
            for resource in {one.resource for one in new.given} - self.offerings.keys() - self.expected:
                self.untold(new, resource)
        self._tell(recalled=recalled)
        try:
            await self._write(new)
        except OSError as error:
            raise RequestError(f"{new}: its record can't be written to {self._files.folder}: {error}") from error

    async def _write(self, one: ClaimRecord) -> None:
        """Raises GatewayError, OSError."""
        self._unwritten.add(one.uid)
        await self.change(one.uid, partial(self._files.write, one))
        if self.records.get(one.uid) == one:
            self._unwritten.discard(one.uid)
        if damaged := [it for it in self.damaged if it.uid == one.uid]:  # its file was this one
            self._settled(damaged)

    async def forget(self, old: ClaimRecord) -> None:
        self.records.pop(old.uid, None)
        self._unwritten.discard(old.uid)
        self._told = {key: told for key, told in self._told.items() if key[0] != old.uid}
        self._tell()
        try:
            await self.change(old.uid, partial(self._files.remove, old.uid))
        except (GatewayError, OSError) as error:
            self._log.error("%s: its record can't be removed from %s: %s", old, self._files.folder, error)

    def pods_gone(self, uids: frozenset[str]) -> None:
        """The pods of these claims, and of no others, are known to be gone for the scheduler."""
        if uids != self.gone:
            self.gone = uids
            self._tell()

    # doubts

    @property
    def unsure(self) -> bool:
        """Whether there may be claims that aren't known here: they are another gateway's, or a record is damaged."""
        return not self._loaded or bool(self.doubt.value)

    def damage(self, uid: str) -> Damaged | None:
        """The damaged record of the claim."""
        return next((one for one in self.damaged if one.uid == uid), None)

    def doubt_of(self, uid: str) -> str:
        """Why the claim gets no devices now. A claim whose own damaged record is the only doubt may be prepared again:
        its devices are its own.
        """
        own = self.compared and not self.lost and [one.uid for one in self.damaged] == [uid]
        return "" if own else self.doubt.value

    async def set_aside(self, one: Damaged) -> None:
        """The claim of this file has ended. Raises RequestError."""
        try:
            await self.on_disk(partial(self._files.set_aside, one))
        except OSError as error:
            raise RequestError(f"{self._files.folder / one.file} can't be set aside: {error}") from error
        self._log.warning("%s: the claim has ended; the file is kept as %s.damaged", one.file, one.file)
        self._settled([one])

    async def look_for_damage(self) -> None:
        """Forgets the damaged files that a person has removed. Raises GatewayError, OSError."""
        if self.damaged and (gone := await self.on_disk(partial(self._files.gone, self.damaged))):
            self._settled(gone)

    def kubelet_is_mute(self, *, mute: bool = True) -> None:
        """No kubelet can tell of claims here: it is one without DRA, or none of its sockets can be seen; or one may be
        able to again.
        """
        self._blind = mute
        self._doubt_others()

    def _doubt_others(self) -> None:
        if self._loaded:
            others, untold = self.others(), not (self.compared or self._blind)
            lost = frozenset(name for name, pool in others.items() if self.damaged or pool in self._lost_pools)
            self.in_doubt.set(lost | (others.keys() - set(self.served_before) if untold else frozenset()))

    async def missing(self, why: str, pools: Collection[str] = ()) -> None:
        """The records were compared with the kubelet's claims; ``why``: of those that are missing, empty if none is;
        ``pools``: of their devices. Raises GatewayError, OSError.
        """
        self.compared = self.compared or not why
        if why and why != self.lost:
            self._log.error("no claim gets devices: %s", why)
        self.lost, self._lost_pools = why, frozenset(pools)
        self._tell()
        # Last: a full disk keeps no device from anybody.
        for uid in tuple(self._unwritten):
            if (one := self.records.get(uid)) is not None:
                await self._write(one)
        if self.compared and not self._saved:
            await self.on_disk(self._files.completed)
            self._saved = True

    def _settled(self, some: Collection[Damaged]) -> None:
        self.damaged = tuple([one for one in self.damaged if one not in some])
        self._tell()
        self.doubt.notify()  # its text may name another file than the one that a claim waits for

    def _why(self) -> str:
        """Why claims without a record may have devices."""
        if not self.damaged:
            unknown = "it isn't known yet which claims pods have: the kubelet's PodResources hasn't told"
            return self.lost or ("" if self.compared else unknown)
        file = self._files.folder / self.damaged[0].file
        return (
            f"{file} isn't a claim's record ({self.damaged[0].why}), so it isn't known which devices its claim has: no "
            "claim gets devices before that claim has ended; if none of its pods runs any more, remove the file"
        )

    def _tell(self, only: str = "", *, recalled: bool = False) -> None:
        """Tells the resources what their claims hold now."""
        self.doubt.set(self._why())
        self._doubt_others()
        if not self._loaded:
            return
        for name, usage in self.by_resource.items():
            if only in ("", name) and isinstance(value := usage.value, ClaimHoldings):
                usage.set(value.told(self.records.values(), self.doubt.value, self.gone, recalled=recalled))
        self._leave({name: one.value for name, one in self.by_resource.items() if name not in self.offerings})

    def _leave(self, left: Mapping[str, InUse]) -> None:
        known = {name: in_use.remembered(self._remembered.get(name, {})) for name, in_use in left.items()}
        self._left.set({name: in_use for name, in_use in known.items() if in_use.last_known})

    @property
    def changing(self) -> frozenset[asyncio.Future[Any]]:
        """The changes of files under way, also those that nobody waits for any more."""
        return self._changes.running

    async def change(self, uid: str, work: Callable[[], T]) -> T:
        """Changes a file of a claim after what is under way there: a change that took too long must not come after a
        later one. Raises GatewayError, OSError.
        """
        return await self._changes.within(uid, lambda: self._threads.call("claims", work, DISK), DISK, "the disk")

    async def on_disk(self, work: Callable[[], T]) -> T:
        """What ``work`` returns, on a thread. Raises GatewayError, and what it raises."""
        return await self._threads.call_within("claims", work, DISK)

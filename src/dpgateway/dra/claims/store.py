"""The records of all claims, and the resources that are told what their claims hold.

Theory of operation. A record in memory reserves its ids in the same step of the event loop; what isn't on disk isn't
done. So memory may be ahead of the disk, never behind it. What the disk has refused is written at the next comparison.

A claim's devices are of resources, and the front offers some of these. What is told of a resource, each time that its
records or the doubts change (``doubts``), depends on where it is:

    expected       going to be offered here: claims wait for it
    offered        here (``offerings``): its own usage has what claims hold (``usage``)
    elsewhere      by another front, or nowhere any more: what claims hold is left to the pools (``left``), with the
                   hardware that its journal had when the records were read. An end is owed to the driver there, and so
                   is what only the journal knows: a record was damaged or lost
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from dpgateway.dra.claims.choosing import Offering
from dpgateway.dra.claims.doubts import ClaimDoubts
from dpgateway.dra.claims.files import ClaimDisk
from dpgateway.dra.claims.holdings import ClaimHoldings, debts
from dpgateway.dra.claims.records import ClaimRecord, Given, Phase
from dpgateway.errors import GatewayError, KubeletError, RequestError
from dpgateway.kit.observable import Observable, Signal
from dpgateway.resource.front import Behind, InUse, Unreleased, Usage
from dpgateway.resource.granting import Granting
from dpgateway.resource.orphans import Owe

Left = Observable[Mapping[str, InUse]]
"""What claims hold of resources that this front doesn't offer (resource/pools.py)."""


def _nowhere(resource: str) -> None:
    """There is no other front."""
    raise RequestError(f"resource {resource} isn't served here any more")


class ClaimStore:
    """The records of all claims of a node. Used from the event loop."""

    def __init__(self, disk: ClaimDisk, boot: str, left: Left, log: logging.LoggerAdapter[logging.Logger]) -> None:
        """``boot``: the node's boot id."""
        self.disk, self.doubts, self._boot, self._left, self._log = disk, ClaimDoubts(disk, log), boot, left, log
        self.records: dict[str, ClaimRecord] = {}
        """By uid. As on disk, but for a write that failed: ``_unwritten`` contains the claims of these, by uid."""
        self._unwritten: set[str] = set()
        self.gone: frozenset[str] = frozenset()
        """The claims, by uid, whose pods are gone for the scheduler, but may still have running containers."""
        self.by_resource: dict[str, Usage] = {}
        """What claims hold of each resource that is offered, or that a claim has devices of."""
        self.expected: set[str] = set()
        """The names of the resources that are going to be served."""
        self.offerings: dict[str, Offering] = {}
        """The resources that are served, by name."""
        self.served = Signal()
        """Notified when a resource has come or gone."""
        self.elsewhere: Callable[[str], Granting | None] = _nowhere
        """Of a resource that another front serves; None if it is going to. Raises RequestError if it isn't configured.
        """
        self.owe: Owe = lambda *_: False
        """Of a resource that another front offers by now."""
        self.told: dict[tuple[str, str], dict[str, bool]] = {}
        """`told` contains whether a driver is told that an id is free, as far as that is decided, keyed by the claim's
        uid and resource. For claims without a record any more, with an empty uid, it is decided, and `told` contains
        whether this front's journal may still have the id.
        """
        self.journal: Callable[[str], Mapping[str, Unreleased]] = lambda _: {}
        """Reads a resource's journal, on a thread; raises KubeletError, OSError."""
        self._remembered: dict[str, Mapping[str, Unreleased]] = {}
        """`_remembered` contains the journals as they were when the records were read, keyed by resource."""
        self.doubts.why.subscribe(self.tell)

    async def peek(self) -> None:
        """Reads what claims hold of resources that aren't offered here, before the records are this gateway's. Such a
        resource has a lock of its own: with it, nobody gives more of it away. Raises GatewayError, OSError.
        """
        if not self.doubts.loaded:
            found, _ = await self.disk.run(self.disk.files.look)
            names = await self._remember(found)
            if not self.doubts.loaded:  # else newer ones are known by now
                names -= self.expected
                empty = ClaimHoldings(boot=self._boot)
                left = {name: replace(empty, resource=name).told(found, recalled=True) for name in names}
                self._leave(left, found)
        else:
            for name in await self._remember(()):
                self.usage(name)
            self.tell(())
        self.doubts.look_at_others()

    async def load(self) -> None:
        """Reads the records of earlier gateways. Raises GatewayError, OSError."""
        found, damaged = await self.disk.run(self.disk.files.all)
        compared = await self.doubts.complete()
        self._remembered.clear()
        self._forget_told("")
        names = await self._remember(found)
        self.records = {one.uid: one for one in found}
        self.doubts.load(damaged, compared=compared)
        for name in names:
            self.usage(name)
        self.tell(recalled=True)

    async def _remember(self, found: Iterable[ClaimRecord]) -> frozenset[str]:
        """Reads the journals of the resources that these claims have devices of: the hardware may be offered under
        another name by now; and, once, those of another front's resources. Returns the names of those that claims may
        have devices of. Raises GatewayError.
        """
        of_claims = frozenset[str]().union(*[one.resources for one in found])
        names = sorted(of_claims | (self.doubts.others().keys() - self._remembered.keys()))
        try:
            journals = await self.disk.run(lambda: [self._read(name) for name in names])
        except OSError as error:
            journals = [error] * len(names)
        for name, journal in zip(names, journals, strict=True):
            if isinstance(journal, Exception):
                self._log.warning("the hardware that claims have of %s isn't known: %s", name, journal)
            else:
                self._remembered[name] = journal
        return of_claims.union([name for name, given in self._remembered.items() if given])

    def _read(self, name: str) -> Mapping[str, Unreleased] | Exception:
        """Blocks."""
        try:
            return self.journal(name)
        except (KubeletError, OSError) as error:
            return error

    def rest(self) -> None:
        """The records are another gateway's: what claims hold isn't known any more."""
        self.doubts.rest()
        for usage in self.by_resource.values():
            if isinstance(usage.value, ClaimHoldings):
                usage.set(replace(usage.value, claims=None, looked=False))

    def usage(self, resource: str) -> Usage:
        """What claims hold of the resource, kept up to date."""
        if resource not in self.by_resource:
            self.by_resource[resource] = Usage(ClaimHoldings(resource=resource, boot=self._boot))
            self.tell((resource,), recalled=True)
        return self.by_resource[resource]

    def owes(self, one: Given) -> bool:
        """Whether a driver of this front has to release some of this, wherever the resource is by now."""
        usage = self.by_resource.get(one.resource)
        return usage is not None and not usage.value.unreleased.keys().isdisjoint(one.ids)

    def untold(self, old: ClaimRecord, resource: str) -> frozenset[str] | None:
        """The ids of a claim that is ending, of a resource that isn't offered here, of which no driver will be told.
        Those that another front offers by now it has to release: it is told of them once; those of a driver without
        release() nobody has to. None as long as no driver runs there, as at the gateway's start.
        """
        told = self.told.setdefault((old.uid, resource), {})
        in_use, remembered = self.usage(resource).value, self._remembered.get(resource, {})
        given = in_use.remembered(remembered).unreleased
        ids, before = frozenset(old.of(resource)), len(told)
        for id_ in ids - told.keys():
            entry = given.get(id_)
            answer = entry is not None and (entry.driver == "" or self.owe(resource, id_, entry))
            if answer is not None:
                told[id_] = answer
        if len(told) > before:  # in the same step, or the driver would take its own debt for another one's device
            self.tell(())
        return frozenset(id_ for id_ in ids if not told[id_]) if ids <= told.keys() else None

    def is_here(self, resource: str) -> bool:
        """Whether it is offered here, or going to be."""
        return resource in self.expected or resource in self.offerings

    def recall(self, resource: str, given: Mapping[str, Unreleased]) -> None:
        """A claim whose record is made again has these ids, of a resource that another front offers."""
        self._remembered[resource] = {**self._remembered.get(resource, {}), **given}
        self.usage(resource)

    def serves(self, resource: str) -> bool:
        """Whether it has listed, and knows what it gave, on whichever front. Raises RequestError if it isn't
        configured.
        """
        if (offering := self.offerings.get(resource)) is not None:
            return offering.usage.value.remembers and offering.granting.inventory.list.value is not None
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
        self.told.pop(("", resource), None)
        self._remembered.pop(resource, None)  # its journal has a reader of its own
        self.tell((resource,), recalled=True)
        self.doubts.look_at_others()
        self.served.notify()

    def drop(self, resource: str) -> None:
        """It is no longer offered here. What claims have of it counts until they end; what it hasn't released is in its
        journal.
        """
        self.expected.discard(resource)
        gone = self.offerings.pop(resource, None)
        self.tell((resource,))
        self.doubts.look_at_others()
        if gone is not None:
            gone.usage.notify()
        self.served.notify()

    async def write(self, new: ClaimRecord, *, recalled: bool = False) -> None:
        """Reserves the ids in the same step of the event loop. ``recalled``: the record was lost, and the drivers have
        given the ids before. Raises RequestError: what isn't on disk isn't done.
        """
        before, self.records[new.uid] = self.records.get(new.uid), new
        if new.phase is not Phase.ENDING:  # given anew: what was told of these ids is outdated
            self._forget_told(new.uid)
        else:  # owed to the drivers before it counts as free
            for resource in new.resources - self.offerings.keys() - self.expected:
                self.untold(new, resource)
        self.tell(new.resources if before is None else new.resources | before.resources, recalled=recalled)
        if recalled:  # a call for the claim may wait for the end of a doubt, or for its resource
            self.doubts.why.notify()
            self.served.notify()
        try:
            await self._write(new)
        except OSError as error:
            raise RequestError(f"{new}: its record can't be written to {self.disk.files.folder}: {error}") from error

    async def _write(self, one: ClaimRecord) -> None:
        """Raises GatewayError, OSError."""
        self._unwritten.add(one.uid)
        await self.disk.change(one.uid, partial(self.disk.files.write, one))
        if self.records.get(one.uid) == one:
            self._unwritten.discard(one.uid)
        self.doubts.written(one.uid)

    async def forget(self, old: ClaimRecord) -> None:
        self.records.pop(old.uid, None)
        self._unwritten.discard(old.uid)
        for name in old.resources - self.offerings.keys():
            self.told.setdefault(("", name), {}).update(dict.fromkeys(self.told.get((old.uid, name), ()), True))
        self._forget_told(old.uid)
        self.tell(old.resources)
        try:
            await self.disk.change(old.uid, partial(self.disk.files.remove, old.uid))
        except (GatewayError, OSError) as error:
            self._log.error("%s: its record can't be removed from %s: %s", old, self.disk.files.folder, error)

    def _forget_told(self, uid: str) -> None:
        self.told = {key: told for key, told in self.told.items() if key[0] != uid}

    async def compared(self, missing: str, pools: Collection[str] = ()) -> None:
        """The records were compared with the kubelet's claims. ``missing``: why some are, empty if none is; ``pools``:
        of their devices. Raises GatewayError, OSError.
        """
        self.doubts.missing(missing, pools)
        # Last: a full disk keeps no device from anybody.
        for uid in tuple(self._unwritten):
            if (one := self.records.get(uid)) is not None:
                await self._write(one)
        await self.doubts.save()

    def pods_gone(self, uids: frozenset[str]) -> None:
        """The pods of these claims, and of no others, are known to be gone for the scheduler."""
        if uids != self.gone:
            self.gone = uids
            self.tell()

    def tell(self, names: Iterable[str] | None = None, *, recalled: bool = False) -> None:
        """Tells the resources of these names, or all, what their claims hold now."""
        if not self.doubts.loaded:
            return
        claims, doubt = self.records.values(), self.doubts.why.value
        for name in self.by_resource if names is None else self.by_resource.keys() & names:
            usage, offering = self.by_resource[name], self.offerings.get(name)
            if isinstance(value := usage.value, ClaimHoldings):
                usage.set(value.told(claims, doubt, self.gone, recalled=recalled))
            # In the same step it is excluded in the resource's pool, so that no other claim there is refused for it.
            if offering is not None:
                offering.granting.inventory.exclusion.uses_changed()
        away = self.by_resource.keys() - self.offerings.keys()
        if away or self._left.value:
            self._leave({name: self.by_resource[name].value for name in away}, claims)

    def _leave(self, left: Mapping[str, InUse], claims: Iterable[ClaimRecord]) -> None:
        ending, known = [one for one in claims if one.phase is Phase.ENDING], dict[str, InUse]()
        for name, value in left.items():
            untold = [set(one.of(name)).difference(self.told.get((one.uid, name), ())) for one in ending]
            in_use = value.remembered(self._remembered.get(name, {}))
            lost = debts(name, in_use, claims).difference(self.told.get(("", name), ()))
            known[name] = replace(in_use.without_told(lost.union(*untold)), looked=value.looked or self.doubts.blind)
        self._left.set({name: in_use for name, in_use in known.items() if in_use.taken or in_use.abandoned})

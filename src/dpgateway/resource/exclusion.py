"""The devices of a resource whose hardware is in use under another name, of the resource or of its pool.

Theory of operation. Exclusion is a compare-and-set in the event loop, without a lock: the first Allocate to begin has
the hardware, and every other member of the pool is told before control returns to the loop. An exclusion binds
Allocates from the moment at which it is applied to the ledger, whatever list the kubelet has seen. It is computed anew
when anything in the pool may have changed: at the begin and the end of each Allocate, with the driver's list, and with
the holdings. The pool hears only of changes (``_told``).

For example, device ``board0`` of resource A and ``slot0`` of B name the hardware ``0000:3b:00.0``. Once A's Allocate of
``board0`` begins, ``slot0`` is Unhealthy.

Two devices may be the same hardware; so may a device and a grant from a time when names had other meanings. Both are
rare, and scanning 10,000 devices for each Allocate is expensive. So the scan is skipped unless another member of the
pool uses something, or this one does and one of these holds (:attr:`may_crowd`, :meth:`Exclusion.exclude`):

    _shared     a device names hardware, or an id was granted with hardware of another name
    _formed     an id may have meant another device under an earlier ``shares.ids``
    _odd        a taken id isn't on the driver's last list
    lost ids    (the ledger's)

``_shared`` and ``_formed`` are never reset: tracking the end of the last such grant isn't worth it. Grants of earlier
gateways count for them once, when the journal has been read (``_recalled``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from dpgateway.kit.observable import Signal
from dpgateway.model import Device
from dpgateway.resource.front import Usage
from dpgateway.resource.ledger import Ledger
from dpgateway.resource.shares import device_id
from dpgateway.resource.use import (
    HardwareUse,
    counted,
    crowded,
    excluded,
    excluders,
    hardware_use,
    shares_in_use,
    within,
)


class Pool:
    """One pool. Each member asks for the uses of the others before a grant (:meth:`others`), and is told when they
    change (:meth:`tell`).
    """

    def __init__(self, besides: Callable[[], Iterable[HardwareUse]] = tuple, *, alone: bool = False) -> None:
        """``besides`` returns the uses under other names that count in the pool. ``alone``: the pool stands for a
        single resource without a configured pool.
        """
        self.members: dict[str, Exclusion | None] = {}
        """`members` contains the members, keyed by resource. None stands for one that hasn't joined yet: its uses are
        unknown, so the pool grants nothing.
        """
        self.alone = alone
        self.beside: tuple[Pool, ...] = ()
        """The pools in which its members' uses count, too."""
        self.known = asyncio.Event()
        """Set while the uses of all members are known."""
        self._besides = besides

    def expect(self, name: str) -> None:
        """A resource of this name is going to join."""
        self.members[name] = None
        self.known.clear()

    def join(self, member: Exclusion) -> None:
        self.members[member.name] = member

    def leave(self, name: str) -> None:
        self.members.pop(name)
        if self.members or not self.alone:
            self.tell(name)

    def others(self, name: str) -> Sequence[HardwareUse]:
        """The uses under all names but this one, as far as they exclude anything."""
        besides = tuple(self._besides())
        if len(self.members) > 1:
            return (*self._uses(name)[0].values(), *besides)
        return besides

    def tell(self, name: str = "") -> None:
        """Tells the other members that the uses under this name have changed; without a name: those ``besides``."""
        # One member's unknown holdings block the others.
        (uses, known), besides = self._uses(), tuple(self._besides())
        if known and all(use.known for use in besides):
            self.known.set()
        else:
            self.known.clear()

        # The uses are computed once, not per member: pools may have hundreds.
        for other, member in tuple(self.members.items()):
            if member is not None and other != name:
                member.exclude((*(use for owner, use in uses.items() if owner != other), *besides))
        if name:
            for pool in self.beside:
                pool.tell()

    def _uses(self, but: str = "") -> tuple[Mapping[str, HardwareUse], bool]:
        """The uses of all members but this one, as far as they exclude anything, and whether all uses are known."""
        members = [(name, member) for name, member in self.members.items() if name != but]
        uses = {name: HardwareUse(name) if member is None else member.own_use() for name, member in members}
        # A pool may have hundreds. Of the uses that are merely unsure two suffice, so that each member sees one besides
        # its own.
        using = {name: use for name, use in uses.items() if use.by_hardware}
        unsure = islice((name for name, use in uses.items() if use.unsure and name not in using), 2)
        return using | {name: uses[name] for name in unsure}, all(use.known for use in uses.values())


class Exclusion(Signal):
    """The resource as a member of its pool. Notified when the reasons against its devices have changed."""

    def __init__(self, name: str, ledger: Ledger, usage: Usage) -> None:
        super().__init__()
        self.name, self.ledger, self.usage = name, ledger, usage
        self._form = ledger.shares.ids
        self._pool = Pool(alone=True)
        self._told: object = None
        """The last news for the pool."""
        self._deaf = False
        """Whether there is no driver to release to."""
        self._shared, self._formed, self._odd, self._recalled = False, bool(self._form), False, False

    # a member of its pool

    def join(self, pool: Pool) -> None:
        """Joins this pool, after it has left another: from now on the hardware that its members use is excluded."""
        self._pool, self._told = pool, None
        pool.join(self)
        self.exclude()

    def own_use(self) -> HardwareUse:
        """Freed ids count as used until their release, unless there is no driver to release them to."""
        return hardware_use(self.name, self.usage.value, self.ledger.device, untold=not self._deaf)

    def tell_pool(self) -> None:
        """Tells the pool of changes only: every member reads every checkpoint, and most bring no news."""
        if self._pool.alone and not self._pool.beside:
            return
        if (news := self.own_use().news) != self._told:
            self._told = news
            self._pool.tell(self.name)

    # events

    def exclude(self, others: Sequence[HardwareUse] | None = None) -> None:
        """Excludes the hardware of ``others``, by default what the rest of the pool uses now."""
        others = self._pool.others(self.name) if others is None else others

        # Once: a grant of an earlier gateway may have had other hardware, or another device, than its id means now.
        in_use, now = self.usage.value, device_id
        if in_use.remembers and not self._recalled:
            self._recalled, given = True, in_use.unreleased.items()
            self._shared = self._shared or any(entry.hardware - {now(offered)} for offered, entry in given)
            self._formed = self._formed or any(entry.device not in ("", now(offered)) for offered, entry in given)
            self.compare()

        # Without a use that can concern a device of another name, the scan is skipped.
        own = self.own_use() if self._shared or self.may_crowd else None
        uses = others if own is None else (own, *others)
        if uses and any(one.by_hardware or one.unsure for one in uses):
            devices, own = self.ledger.devices, own or self.own_use()
            reasons = excluded(devices.values(), own, others, formed=bool(self.ledger.shares.ids))
            shares = crowded(devices, self.ledger.ids, own)
            many = counted(map(devices.__getitem__, reasons), own, others)
            sure = not own.forgotten and not any(one.unsure for one in others)
            changed = self.ledger.exclude(reasons, shares, many, sure=sure)
        else:
            changed = self.ledger.exclude({})
        if changed:
            self.notify()

    def uses_changed(self) -> None:
        """An Allocate began or failed, or holdings changed: excludes or readmits what shares the hardware."""
        if self.ledger.lost:
            self.recall()
        self.exclude()
        self.tell_pool()

    def listed(self, devices: Iterable[Device]) -> None:
        """The ledger has the driver's list, in which these devices are new."""
        self._deaf = False
        self._shared = self._shared or any(device.hardware is not None for device in devices)
        if self._form != self.ledger.shares.ids:
            self._form, self._formed = self.ledger.shares.ids, True
        self.exclude()

    def failed(self, *, deaf: bool) -> None:
        """The driver doesn't answer. ``deaf``: it can't be told of releases, either."""
        self._deaf = deaf
        self.tell_pool()

    def compare(self) -> None:
        """The driver's whole list, or the ids in use, are others."""
        self._odd = not self.ledger.presents(self.usage.value.unreleased)

    def recall(self) -> None:
        """Has each lost id mean the device that was granted under it, whatever ``shares`` says now."""
        entries = self.usage.value.unreleased.items()
        self.ledger.meant({id_: entry.device for id_, entry in entries if entry.device})

    # questions

    def conflicts(self, devices: Iterable[Device], *, freeing: bool = False) -> Mapping[str, str]:
        """The uses of the devices' hardware under other names of the resource or of its pool: a text with the name and
        the holder, by device id. ``freeing``: for a release, so other freed ids don't count.
        """
        others = [*map(_running, self._pool.others(self.name))]
        own = _running(hardware_use(self.name, self.usage.value, self.ledger.device, untold=not freeing))
        reasons = {}
        for device in devices:
            if reason := next(filter(None, (one.says_of(device) for one in others)), "") or within(device, own):
                reasons[device.id] = reason
        return reasons

    def excluders(self, device: Device) -> frozenset[tuple[str, str]] | None:
        """Each use that excludes the device, by resource and offered id; None if there may be others."""
        return excluders(device, self.own_use(), self._pool.others(self.name))

    def worked_on(self, device: Device) -> bool:
        """Whether a call of an earlier driver of this resource still works on the device."""
        return any(one.resource == self.name and one.says_of(device) for one in self._pool.others(self.name))

    @property
    def unsure(self) -> str:
        """Why any device may be in use in another resource of the pool; empty if their uses are known."""
        return next(filter(None, (one.unsure for one in self._pool.others(self.name))), "")

    @property
    def may_crowd(self) -> bool:
        """Whether something may be held under an id that isn't offered, so that a device may lack shares."""
        return bool(self.ledger.lost) or self._odd or self._formed

    def no_share_left(self, ids: Collection[str], given_up: Collection[str] = ()) -> tuple[str, str] | None:
        """The first of these ids whose device has no share left, and the ids that hold its shares; else None. There is
        one only while something is held under an id that isn't offered: the kubelet may ask for that id, or for one
        that it considers free before the front has seen its pod end. ``given_up``: see ``InUse.given_up``.
        """
        # An id given up may have been granted again since; the grant counts.
        over = set(given_up) - self.usage.value.fresh
        in_use, find = shares_in_use(self.own_use()), self.ledger.device
        for id_ in ids:
            if (device := find(id_)) is None:
                continue
            # The request itself may ask for several shares of the device.
            asked = [other for other in ids if (same := find(other)) is not None and same.id == device.id]
            others = dict.fromkeys(i for i in (*in_use.get(device.id, ()), *asked) if i != id_ and i not in over)
            if len(others) >= self.ledger.shares.count:
                return id_, ", ".join(others)
        return None


def _running(one: HardwareUse) -> HardwareUse:
    """The uses without those of containers that were refused their start: what counts for another start."""
    if not one.stopped:
        return one
    left = {name: [id_ for id_ in ids if id_ not in one.stopped] for name, ids in one.by_hardware.items()}
    return replace(one, by_hardware={name: ids for name, ids in left.items() if ids})

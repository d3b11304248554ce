"""Hardware in use, and the devices that it excludes: pure functions over plain values.

Theory of operation. The *hardware* of a device is a set of names, by default its own id. Devices of one resource or one
pool that share a name exclude each other: from the start of an Allocate of one until it is free, the others are
Unhealthy. The hardware recorded with a grant counts, not the present meaning of its id.

A resource tells its pool its uses as one value (:class:`HardwareUse`). Where the uses are uncertain, it overstates
them, so that nothing is given twice:

    not known   the journal or the kubelet's sources are unread, or another gateway serves the resource: any device may
                be in use
    forgotten   the hardware of an id in use wasn't recorded: it may be any device that names hardware
    freed       the id awaits its release: in use for the other names of its hardware
    abandoned   the driver's allocate() goes on without its Allocate: as freed, even without a driver to release to
    stopped     the container was refused its start: its device is in use for other grants, not for other starts

Joint devices of one request may share hardware, and are granted together to one container. A held joint device isn't
excluded by another one that is held, too; one that isn't held is excluded as usual.

Shares of one device don't exclude each other. But after ``shares`` changed, a container may hold a share under an id
that is no longer offered; each such share takes the place of a free offered id (:func:`crowded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpgateway.model import Device, hardware
from dpgateway.resource.front import InUse
from dpgateway.resource.shares import device_id


@dataclass(frozen=True, slots=True)
class HardwareUse:
    """The hardware in use, or being allocated, under the name of one resource."""

    resource: str
    known: bool = False
    """Whether the journal has been read, and the kubelet's sources looked at."""
    ids: frozenset[str] = frozenset()
    """The offered ids that count as used."""
    by_hardware: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`by_hardware` contains used ids, those in use before freed ones, keyed by hardware name. Two ids may have the
    same hardware if that was unknown when they were granted, or their resources were in no pool then."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """`devices` contains the granted device, or else the present one, keyed by used id."""
    freed: frozenset[str] = frozenset()
    """The used ids that no container uses any more and that await their release."""
    holders: Mapping[str, str] = field(default_factory=dict)
    """`holders` contains the known holders, keyed by used id."""
    counted: Mapping[str, str] = field(default_factory=dict)
    """`counted` contains the extended resource by which the scheduler counts the holder, keyed by used id, if that is
    certain."""
    forgotten: str = ""
    """An id in use whose hardware is unknown; empty if there is none."""
    stopped: frozenset[str] = frozenset()
    """The used ids whose container was refused its start."""
    elsewhere: str = ""
    """The other gateway that serves the resource and may grant any of it; empty if none does."""

    def device(self, offered: str) -> str:
        """The id of the device behind an offered id."""
        return self.devices.get(offered) or device_id(offered)

    @property
    def unsure(self) -> str:
        """Why any hardware may be in use under this name; empty if the uses are known."""
        if self.elsewhere:
            return f"it may be given away as {self.resource}: {self.elsewhere}"
        if not self.known:
            return f"it isn't known yet what containers hold as {self.resource}"
        if self.forgotten:
            what = f"what a container holds as {self.forgotten} of {self.resource}"
            return f"it may be {what}, because nobody remembers what that was"
        return ""

    @property
    def news(self) -> tuple[str, Mapping[str, str]]:
        """The part that other resources depend on; they are told when it changes."""
        return self.unsure, {name: self.holders.get(ids[0]) or "a container" for name, ids in self.by_hardware.items()}

    def says_of(self, device: Device) -> str:
        """Why another resource can't give the device away; empty if its hardware isn't used under this name."""
        for name in hardware(device):
            if ids := self.by_hardware.get(name):
                what = "" if name == device.id else f"{name} is "
                return f"{what}held as {self.resource} by {self.holders.get(ids[0]) or 'a container'}"
        return ""


def hardware_use(
    resource: str, in_use: InUse, device_of: Callable[[str], Device | None], *, untold: bool = True
) -> HardwareUse:
    """``device_of``: the present device of an offered id. ``untold``: whether freed ids count until their release."""
    # Freed ids come last in `by_hardware`, so that a reason names a container that still runs if there is one.
    ids, freed = in_use.taken if untold else in_use.last_known, in_use.freed
    stopped = in_use.stopped.difference(freed, *in_use.in_flight, *in_use.abandoned)
    if working := frozenset[str]().union(*in_use.abandoned):  # nearly always there is none
        ids, freed = ids | working, freed | (working - in_use.last_known)
    by_hardware: dict[str, list[str]] = {}
    devices: dict[str, str] = {}
    forgotten = ""
    for offered in sorted(ids, key=lambda id_: (id_ in freed, id_)):
        entry, device = in_use.unreleased.get(offered), device_of(offered)
        if meant := given_as(in_use, offered) or (device.id if device is not None else ""):
            devices[offered] = meant

        # The journal's record, the record of each Allocate in flight or abandoned, and the present device where these
        # lack names, or have those from before the boot.
        flights = [flight[offered] for flight in (*in_use.in_flight, *in_use.abandoned) if offered in flight]
        names = (entry.hardware if entry is not None else frozenset()).union(*flights)
        if device is not None and (offered in in_use.before_boot or not (names and all(flights))):
            names |= hardware(device)
        # A container that was refused its start keeps its device from others, but not a number that it had before.
        if offered in stopped and device is not None:
            names &= hardware(device)
        for name in names:
            by_hardware.setdefault(name, []).append(offered)
        # a freed id without a device may await its release for ever, so it must not block the pool
        if not names and offered not in stopped and (device is not None or offered not in freed):
            forgotten = forgotten or offered
    holders = {id_: in_use.holder(id_) for id_ in ids}
    holders |= dict.fromkeys(working & freed, "an allocate() of its driver that nobody waits for any more")
    counted = {id_: name for id_, name in in_use.counted.items() if id_ in ids}
    known = in_use.remembers and in_use.looked
    return HardwareUse(resource, known, ids, by_hardware, devices, freed, holders, counted, forgotten, stopped=stopped)


def given_as(in_use: InUse, offered: str) -> str:
    """The device granted under the id; empty for an unrecorded grant, and during another Allocate of the id."""
    entry = in_use.unreleased.get(offered)
    return "" if entry is None or any(offered in flight for flight in in_use.in_flight) else entry.device


def worked_on(resource: str, method: str, devices: Iterable[Device]) -> HardwareUse:
    """The devices that a call still works on after its driver ended, as used."""
    by_hardware = {name: [device.id] for device in devices for name in (device.hardware or (device.id,))}
    call = f"{method}() of its driver, which ended before that call did"
    return HardwareUse(resource, True, by_hardware=by_hardware, holders={device.id: call for device in devices})


def certain(one: HardwareUse) -> HardwareUse:
    """Reduces uncertain uses to the certain ones, for a resource in no pool: it would otherwise wait for all others. An
    id of unknown hardware counts as the device of that name.
    """
    known = frozenset().union(*one.by_hardware.values())
    unknown = {device_id(offered): [offered] for offered in one.ids - known}
    return replace(one, known=True, forgotten="", by_hardware={**unknown, **one.by_hardware})


def excluded(
    devices: Iterable[Device], own: HardwareUse, others: Sequence[HardwareUse] = (), *, formed: bool = False
) -> Mapping[str, str]:
    """The reasons against devices whose hardware is in use, by device id.

    ``formed``: an id may mean any device of its resource, even one that names no hardware.
    ``others``: the uses of the other resources of the pool, and of earlier drivers' calls. A use by an earlier driver
    of this resource excludes a device for the next container only: its present holder keeps it.
    """
    unsure = next((one.unsure for one in others if one.unsure), "")
    forgotten = ""
    if own.forgotten:
        forgotten = f"it may be what a container holds as {own.forgotten}, because nobody remembers what that was"
    users: dict[str, list[HardwareUse]] = {}  # indexed by name, because there are many devices
    for one in others:
        for name in one.by_hardware:
            users.setdefault(name, []).append(one)
    out = {}
    for device in devices:
        names = (device.id,) if device.hardware is None else device.hardware
        reason = "" if own.by_hardware.keys().isdisjoint(names) else within(device, own)

        # A device that its own resource uses already isn't affected by the uses of an earlier driver of that resource.
        if not reason and not users.keys().isdisjoint(names):
            found = (one for name in hardware(device) for one in users.get(name, ()))
            besides = (one for one in found if one.resource != own.resource or not _has(own, device))
            reason = next((one.says_of(device) for one in besides), "")

        # A device with all of its hardware certainly in use under its own id can't be the unknown one.
        if not reason and (forgotten or unsure) and not _has(own, device):
            reason = (forgotten if formed or device.hardware is not None else "") or unsure
        if reason:
            out[device.id] = reason
    return out


def excluders(device: Device, own: HardwareUse, others: Sequence[HardwareUse]) -> frozenset[tuple[str, str]] | None:
    """Each use that excludes the device, by resource and offered id; None if there may be others."""
    if own.forgotten or any(one.unsure for one in others):
        return None
    found, names = set(), (device.id,) if device.hardware is None else device.hardware
    for one in (own, *others):
        for id_ in (id_ for name in names for id_ in one.by_hardware.get(name, ())):
            if id_ not in one.ids:  # a call of a driver that has ended
                return None
            if one is not own or own.device(id_) != device.id:
                found.add((one.resource, id_))
    return frozenset(found)


def counted(devices: Iterable[Device], own: HardwareUse, others: Sequence[HardwareUse]) -> Mapping[str, int]:
    """How many ids of these excluded devices stay Healthy, by device id.

    What another front gave to pods that asked for this resource stays in the scheduler's arithmetic, which is what is
    allocatable minus the requests of all pods of the node (noderesources, seen with 1.37). Listed Unhealthy, those ids
    would count twice. Only devices that no others use: the holders of other names are nowhere in that sum.
    """
    if not any(one.counted for one in others) or own.forgotten or any(one.unsure for one in others):
        return {}
    # A pod that has got another device here is in the sum once: kubelets before 1.36, which don't know its claim, give
    # one to a container that starts again.
    here = {holder for holder in own.holders.values() if holder}
    out = {}
    for device in devices:
        names = hardware(device)
        holders = {
            (None if one.holders.get(id_) in here else one.counted.get(id_), id_)
            for one in others
            for name in names
            for id_ in one.by_hardware.get(name, ())
        }
        if own.by_hardware.keys().isdisjoint(names) and {name for name, _ in holders} == {own.resource}:
            out[device.id] = len(holders)
    return out


def crowded(
    devices: Mapping[str, Device], offered: Callable[[str], Sequence[str]], own: HardwareUse
) -> Mapping[str, str]:
    """The reasons against free offered ids, one for each share that is held under an id no longer offered; by offered
    id. ``offered``: the ids of a device, share 0 first.

    Only free ids are blocked, from the last share down. A held id stays Healthy: kubelets from 1.25 on refuse to
    readmit a pod with an Unhealthy device.
    """
    out: dict[str, str] = {}
    for name, held in shares_in_use(own).items():
        if (device := devices.get(name)) is None:
            continue
        ids = dict.fromkeys(offered(name))
        # the device's id may mean other hardware by now
        same = frozenset().union(*(own.by_hardware.get(name, ()) for name in hardware(device)))
        besides = [id_ for id_ in held if id_ not in ids and id_ in same]
        free = [id_ for id_ in reversed(ids) if id_ not in held]
        for id_, other in zip(free, besides, strict=False):
            holder = own.holders.get(other) or "a container"
            out[id_] = f"its share is held as {other}, which isn't offered any more, by {holder}"
    return out


def shares_in_use(own: HardwareUse) -> Mapping[str, Sequence[str]]:
    """The ids in use or being allocated, by device."""
    found: dict[str, list[str]] = {}
    for id_ in sorted(own.ids - own.freed):
        found.setdefault(own.device(id_), []).append(id_)
    return found


def _has(own: HardwareUse, device: Device) -> bool:
    """Whether all of the device's hardware is in use under its own id.

    Freed ids don't count: their hardware may have been granted again, if an earlier gateway released them and died
    before it recorded that.
    """
    return all(
        any(own.device(offered) == device.id and offered not in own.freed for offered in own.by_hardware.get(name, ()))
        for name in hardware(device)
    )


def within(device: Device, own: HardwareUse) -> str:
    """Why the device can't be given away: another device of its resource with the same hardware is held. Else empty."""
    for name in (device.id,) if device.hardware is None else device.hardware:
        ids = own.by_hardware.get(name, ())
        # a freed id doesn't count, because another container may have the hardware since
        if device.joint and any(own.device(one) == device.id for one in ids if one not in own.freed):
            continue
        for other in ids:
            if own.device(other) != device.id:
                holder = own.holders.get(other, "")  # a pod's uid alone tells people nothing
                return f"{name} is held as {other}{f' by {holder}' if '/' in holder else ''}"
    return ""


def shared(devices: Iterable[Device]) -> tuple[Device, Device] | None:
    """Two of the devices that share hardware, and aren't joint, if there are any."""
    first: dict[str, Device] = {}
    for device in devices:
        for name in hardware(device):
            other = first.setdefault(name, device)
            if other is not device and not (other.joint and device.joint):
                return other, device
    return None

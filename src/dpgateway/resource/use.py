"""Who uses which hardware, in plain values, and which devices can't be given away because of that.

Theory of operation. The *hardware* of a device is the names of what is behind it, by default its own id. Devices of one
resource, or of resources of one pool, that have a name in common are the same hardware: from the moment an Allocate of
one begins until it is free, the others are Unhealthy. What counts is the hardware that an id had when it was given
away, not what its name means today.

What containers have of a resource is one value for all of its pool (:class:`Used`). Where it can't be told exactly, it
says more than is in use, so that nothing is given twice:

    not known   neither journal nor kubelet was read, or another gateway serves the resource: any device may be in use
    forgotten   an id is in use whose hardware nobody wrote down: it may be any device that names hardware
    freed       no container uses it, and it waits for its release: in use for the other names of its hardware

The shares of one device don't exclude each other. But a container may have one under an id that isn't offered any more,
since ``shares`` changed; each of these takes the place of a free id that is offered (:func:`crowded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpgateway.model import Device
from dpgateway.resource.front import InUse
from dpgateway.resource.shares import device_id


@dataclass(frozen=True, slots=True)
class Used:
    """The hardware that containers have, or are getting, under the name of one resource."""

    resource: str
    known: bool = False
    """Whether it is known what earlier gateways gave away, and what the kubelet wrote down."""
    ids: frozenset[str] = frozenset()
    """The offered ids that count as held."""
    behind: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """These ids by the names of what is behind them, first those that are in use: two may have the same hardware, if
    they were given away when nobody knew that, or while their resources were in no pool."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """The device of each of these ids: the one that was given away under it, or else the present one."""
    freed: frozenset[str] = frozenset()
    """Those that no container uses any more, and that wait to be released to the driver."""
    holders: Mapping[str, str] = field(default_factory=dict)
    """Who has each of these ids, as far as anybody said."""
    forgotten: str = ""
    """An id in use whose hardware is unknown; empty if there is none."""
    elsewhere: str = ""
    """The gateway that serves the resource instead, and may give away anything as it; empty if none does."""

    def device(self, offered: str) -> str:
        """The id of the device that an offered id means."""
        return self.devices.get(offered) or device_id(offered)

    @property
    def unsure(self) -> str:
        """Why any hardware may be in use under this name; empty if it is known which."""
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
        """All that it means to other resources."""
        return self.unsure, {name: self._holder(ids[0]) for name, ids in self.behind.items()}

    def says_of(self, device: Device) -> str:
        """Why another resource can't give the device away; empty if nothing of it is used under this name."""
        for name in hardware(device):
            if ids := self.behind.get(name):
                what = "" if name == device.id else f"{name} is "
                return f"{what}held as {self.resource} by {self._holder(ids[0])}"
        return ""

    def takes_a_share(self, offered: str) -> str:
        """Which id that isn't offered any more takes a share, and who has it."""
        return f"its share is held as {offered}, which isn't offered any more, by {self._holder(offered)}"

    def _holder(self, offered: str) -> str:
        return self.holders.get(offered) or "a container"


def used(resource: str, in_use: InUse, device_of: Callable[[str], Device | None], *, untold: bool = True) -> Used:
    """``device_of``: the present device of an offered id. ``untold``: whether freed ids count until their release."""
    ids = in_use.taken if untold else in_use.last_known
    behind: dict[str, list[str]] = {}
    devices: dict[str, str] = {}
    forgotten = ""
    for offered in sorted(ids, key=lambda id_: (id_ in in_use.freed, id_)):
        entry, device = in_use.unreleased.get(offered), device_of(offered)
        if meant := given_as(in_use, offered) or (device.id if device is not None else ""):
            devices[offered] = meant

        # What was written down, what Allocates in flight noted, and the present device if neither says enough.
        flights = [flight[offered] for flight in in_use.in_flight if offered in flight]
        names = (entry.hardware if entry is not None else frozenset()).union(*flights)
        if device is not None and not (names and all(flights)):
            names |= hardware(device)
        for name in names:
            behind.setdefault(name, []).append(offered)
        # what is freed and gone is told to no driver before its device is back, and that may be never
        if not names and (device is not None or offered not in in_use.freed):
            forgotten = forgotten or offered
    holders = {id_: in_use.holder(id_) for id_ in ids}
    return Used(resource, in_use.remembers and in_use.looked, ids, behind, devices, in_use.freed, holders, forgotten)


def given_as(in_use: InUse, offered: str) -> str:
    """The device that was given away under the id; empty if no gateway saw that, or if it is being given away again."""
    entry = in_use.unreleased.get(offered)
    return "" if entry is None or any(offered in flight for flight in in_use.in_flight) else entry.device


def worked_on(resource: str, method: str, devices: Iterable[Device]) -> Used:
    """What a call still works on although its driver has ended."""
    behind = {name: [device.id] for device in devices for name in (device.hardware or (device.id,))}
    call = f"{method}() of its driver, which ended before that call did"
    return Used(resource, True, behind=behind, holders={device.id: call for device in devices})


def certain(one: Used) -> Used:
    """Only what is known to be used under a name: for a resource in no pool, which would otherwise wait for all others.
    An id of unknown hardware is taken for the device of that name.
    """
    known = frozenset().union(*one.behind.values())
    unknown = {device_id(offered): [offered] for offered in one.ids - known}
    return replace(one, known=True, forgotten="", behind={**unknown, **one.behind})


def excluded(
    devices: Iterable[Device], own: Used, others: Sequence[Used] = (), *, formed: bool = False
) -> Mapping[str, str]:
    """Why a device can't be given away because of what is behind it, by device id.

    ``formed``: an id may mean any device of its resource, also one that says nothing of what is behind it.
    ``others``: what the other resources of the pool use, and what earlier drivers still work on: one of this resource
    keeps a device from the next container only.
    """
    unsure = next((one.unsure for one in others if one.unsure), "")
    forgotten = ""
    if own.forgotten:
        forgotten = f"it may be what a container holds as {own.forgotten}, because nobody remembers what that was"
    users: dict[str, list[Used]] = {}  # one look for each name, because there are many devices
    for one in others:
        for name in one.behind:
            users.setdefault(name, []).append(one)
    out = {}
    for device in devices:
        names = (device.id,) if device.hardware is None else device.hardware
        reason = "" if own.behind.keys().isdisjoint(names) else within(device, own)
        if not reason and not users.keys().isdisjoint(names):
            found = (one for name in hardware(device) for one in users.get(name, ()))
            besides = (one for one in found if one.resource != own.resource or not _has(own, device))
            reason = next((one.says_of(device) for one in besides), "")
        if not reason and (forgotten or unsure) and not _has(own, device):
            reason = (forgotten if formed or device.hardware is not None else "") or unsure
        if reason:
            out[device.id] = reason
    return out


def crowded(devices: Mapping[str, Device], offered: Callable[[str], Sequence[str]], own: Used) -> Mapping[str, str]:
    """Why ids that are offered can't be given away, because containers have as many shares of their devices under ids
    that aren't offered any more; by offered id. ``offered``: the ids of a device, share 0 first.

    Only free ids are taken, from the last share on. An id that a container has stays as it is: kubelets from 1.25 on
    refuse a pod that they admit again if a device of it isn't Healthy.
    """
    out: dict[str, str] = {}
    for name, held in shares_in_use(own).items():
        if (device := devices.get(name)) is None:
            continue
        ids = dict.fromkeys(offered(name))
        # the device's name may mean other hardware by now
        same = frozenset().union(*(own.behind.get(name, ()) for name in hardware(device)))
        besides = [id_ for id_ in held if id_ not in ids and id_ in same]
        free = [id_ for id_ in reversed(ids) if id_ not in held]
        out |= {id_: own.takes_a_share(other) for id_, other in zip(free, besides, strict=False)}
    return out


def shares_in_use(own: Used) -> Mapping[str, Sequence[str]]:
    """The ids that containers have, or are getting, by their devices."""
    found: dict[str, list[str]] = {}
    for id_ in sorted(own.ids - own.freed):
        found.setdefault(own.device(id_), []).append(id_)
    return found


def _has(own: Used, device: Device) -> bool:
    """Whether containers have all of the device under its own name.

    What is freed may be another one's by now: an earlier gateway may have died before it wrote down who was told.
    """
    return all(
        any(own.device(offered) == device.id and offered not in own.freed for offered in own.behind.get(name, ()))
        for name in hardware(device)
    )


def within(device: Device, own: Used) -> str:
    """Why the device can't be given away: another one of its resource is the same hardware, and is held. Else empty."""
    for name in (device.id,) if device.hardware is None else device.hardware:
        for other in own.behind.get(name, ()):
            if own.device(other) != device.id:
                holder = own.holders.get(other, "")  # a pod's uid alone tells people nothing
                return f"{name} is held as {other}{f' by {holder}' if '/' in holder else ''}"
    return ""


def hardware(device: Device) -> frozenset[str]:
    """The names of what is behind a device; its own id if the driver says nothing of it.

    Empty if the driver can't know: of an Unhealthy device it may not see more than the name.
    """
    if device.hardware is None:
        return frozenset([device.id]) if device.health.ok else frozenset()
    return frozenset(device.hardware)


def shared(devices: Iterable[Device]) -> tuple[Device, Device] | None:
    """Two of the devices that have hardware in common, if there are any."""
    first: dict[str, Device] = {}
    for device in devices:
        for name in hardware(device):
            if first.setdefault(name, device) is not device:
                return first[name], device
    return None

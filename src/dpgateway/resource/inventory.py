"""The list of one resource as it is now: brings together what its driver says, what containers hold, and time.

It knows neither drivers nor RPCs; its owner tells it what happens. The *ledger* has the ids, their devices and their
health. Four things change it, each in two steps: the ledger, then what the kubelet sees::

    take, fail  the driver has another list, or none                            listed at once
    hold        other ids are held: those must stay listed, others may leave    listed at once
    use         an Allocate began or failed here                                listed after SETTLING
    exclude     the same in another resource of the pool                        listed after SETTLING

What can't be given away any more isn't given away from the first step on, whatever the kubelet has seen.

Two devices may be the same hardware, and so may a device and what a container was given when names meant something
else. That is rare, and looking at 10,000 devices for each Allocate isn't cheap. So nothing is looked at unless one of
these holds (:meth:`_may_crowd`, :meth:`_exclude`), or something of the pool is in use:

    _shared     a device names hardware, or an id was given away with hardware of another name
    _formed     an id may have meant another device, because ``shares.ids`` was another one
    _odd        an id is taken that the driver's last list doesn't offer
    lost ids    (the ledger's)

The first two never end: who has what was given away then, and until when, isn't worth knowing. What earlier gateways
gave away is looked at for them once, when the journal was read (``_recalled``).

The pool is told only what is news to it (``_told``). An id leaves the list only in :meth:`hold`, so a timer has the
front look at its sources again when the next id may be dropped; nothing else is timed but SETTLING.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.kit.observable import Observable
from dpgateway.model import Device, changed, replaced
from dpgateway.resource.front import Usage
from dpgateway.resource.ledger import Ledger
from dpgateway.resource.limit import ListLimit
from dpgateway.resource.offers import Offers
from dpgateway.resource.pools import Pool
from dpgateway.resource.shares import clash, device_id
from dpgateway.resource.use import Used, crowded, excluded, given_as, shares_in_use, used, within

SETTLING = 0.02
"""Seconds from the beginning of an Allocate until a list says what that excludes. Kubelets write their checkpoint at
each list and after each admission. If both come at once, 1.9 garbles the file, and 1.10 may forget what it has just
given away; most Allocates take a few milliseconds."""


class Clock(Protocol):
    """The module ``time``, or what a test says."""

    def monotonic(self) -> float: ...


class Inventory:
    """Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        usage: Usage,
        log: logging.LoggerAdapter[logging.Logger],
        clock: Clock = time,
    ) -> None:
        """``config``: another ``keep_lost`` counts at once, other ``shares`` with the driver's next list, also if it is
        the last one again. ``usage`` is read once more before an id is dropped, which :meth:`hold` then does.
        """
        self.list: Observable[Offers | None] = Observable(None, news=_differ)
        """None until the resource can be offered."""
        self.misfit = Observable("")
        """Why the resource can't be offered as its driver lists it."""
        self.had_healthy = False
        """Whether a list of it ever had a Healthy device."""
        self.ledger = Ledger(config)
        self.name = config.value.name
        self._config, self._shares = config, config.value.shares
        config.subscribe(self.look_later)
        self.usage, self.clock, self._log = usage, clock, log
        self._taken: tuple[Device, ...] | None = None
        """The driver's last list if all of it is offered as the driver says, so that the next one is compared to it."""
        self._limit: ListLimit | None = None
        self._deaf = False
        """Whether there is no driver that could be told what is free."""
        self._shared, self._formed, self._odd, self._recalled = False, bool(self._shares.ids), False, False
        self._pool: Pool | None = None
        self._told: object = None
        self._timer: asyncio.TimerHandle | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._closed = False
        self.published = float("-inf")
        """When the list changed last, in seconds of the monotonic clock."""

    # what the driver says

    def take(self, devices: tuple[Device, ...], limit: ListLimit | None = None) -> bool:
        """The driver's whole list. One that is over the front's ``limit`` changes no ids, only their health. Returns
        whether a device that a container holds may be another one now.
        """
        self._limit = limit
        before, self._shares = self._shares, self._config.value.shares
        if (before.count, before.ids) != (self._shares.count, self._shares.ids):
            self._taken = None
            self._formed = self._formed or before.ids != self._shares.ids
        new = None if self._taken is None else replaced(self._taken, devices)
        if new == []:
            return False  # most drivers return the same values while nothing changes
        now = self.clock.monotonic()

        # Often a few devices are other values, and the list is as long as the last one, which fitted.
        if new is not None and all(was.id == one.id and was.numa_nodes == one.numa_nodes for was, one in new):
            others = tuple([one for _, one in new])
            self.ledger.replace(others, now)
            self._taken = devices

        # A list that doesn't fit changes no ids, and is not even offered if it is the first.
        else:
            fits, listed = self._fits(devices), self.list.value
            if not fits and listed is None:
                return False
            self.ledger.take(devices, now, None if fits or listed is None else listed.keys())
            self._taken, new, others = devices if fits else None, None, devices
            self._odd = not self.ledger.presents(self.usage.value.unreleased)
        self._shared = self._shared or any(device.hardware is not None for device in others)
        self._deaf = False
        self._exclude(self._others())
        self._publish()
        self._tell_pool()

        if new is None or self.ledger.lost:
            return True
        held = self.usage.value.held or ()
        return any(offered in held for device in others for offered in self.ledger.ids(device.id))

    def fail(self, reason: str, *, overdue: bool, deaf: bool = False) -> None:
        """The driver doesn't say what there is. ``overdue``: the first list is due, so one is published. ``deaf``: it
        isn't there to be told what is free, either.
        """
        self._taken = None
        self._deaf = deaf
        self.ledger.fail(reason, self.clock.monotonic())
        if overdue or self.list.value is not None:
            self._publish()
        self._tell_pool()

    def _fits(self, devices: tuple[Device, ...]) -> bool:
        count, form = self._shares.count, self._shares.ids or ""
        failure = clash(tuple(device.id for device in devices), count, form)
        if not failure and (limit := self._limit) is not None:
            lost, present = self.ledger.lost, self.ledger.devices
            besides = limit.bound(lost.values(), lost)
            if present.keys() != {device.id for device in devices}:
                besides += limit.bound(present.values(), present, count)
            failure = limit.too_long(devices, count, form, besides, lambda: self.ledger.after(devices).values())
        if failure and not self.misfit.value:
            self._log.error("the resource failed: %s", failure, extra={"reason": failure})
        if self.misfit.value and not failure:
            self._log.info("the resource recovered")
        self.misfit.set(failure)
        return not failure

    # what containers hold

    def hold(self) -> None:
        """Lists what containers hold and the driver doesn't list; drops what nobody holds any more.

        If that is too long for a kubelet, what containers hold is all that is listed: it must stay on the list.
        """
        in_use, before, listed = self.usage.value, set(self.ledger.lost), self.list.value is not None
        self._odd = not self.ledger.presents(in_use.unreleased)
        other = self.ledger.hold(in_use.held, self.clock.monotonic(), in_use.numa_nodes)
        self._recall_meanings()
        if self.ledger.lost.keys() - before and listed and not self._fits(tuple(self.ledger.devices.values())):
            self.ledger.keep(in_use.held or ())
            self._taken = None
        if (self._exclude(self._others()) or other) and listed:
            self._publish()
        else:
            self.look_later()
        self._tell_pool()

    def given(self, offered: str) -> Device | None:
        """The present device that was given away under the id; the one that the id means now if nobody saw that."""
        name = given_as(self.usage.value, offered)
        return self.ledger.devices.get(name) if name else self.ledger.device(offered)

    def devices_of(self, ids: Iterable[str]) -> set[str]:
        """The devices that were given away under these ids, present or not: one that is away for a moment is held."""
        names = (given_as(self.usage.value, offered) or self.ledger.means(offered) for offered in ids)
        return {name for name in names if name is not None}

    def use(self) -> None:
        """A container is getting devices, or didn't get them: what shares their hardware is listed accordingly."""
        self._recall_meanings()
        self.exclude(self._others())
        self._tell_pool()

    def _recall_meanings(self) -> None:
        """An id means the device that was given away under it, whatever ``shares`` says now."""
        unreleased = self.usage.value.unreleased
        if self.ledger.lost:
            lost = {id_: unreleased[id_].device for id_ in self.ledger.lost if id_ in unreleased}
            self.ledger.meant({id_: device for id_, device in lost.items() if device})

    # what shares its hardware

    def look(self) -> None:
        """Lists what the other resources of the pool use by now."""
        if self._pool is not None:
            self.exclude(self._others())

    def join(self, pool: Pool | None) -> None:
        """From now on nothing is given away that another resource of the pool uses. None: it is in no pool any more."""
        self._pool, self._told = pool, None
        if pool is not None:
            pool.join(self)
        self.exclude(self._others())

    def used(self) -> Used:
        """What is freed counts until its driver was told; but a driver that isn't there keeps nothing from others."""
        return used(self.name, self.usage.value, self.ledger.device, untold=not self._deaf)

    def exclude(self, others: Sequence[Used]) -> None:
        """Gives away accordingly at once, and lists it after SETTLING."""
        if self._exclude(others) and self.list.value is not None and self._settling is None and not self._closed:
            self._settling = asyncio.get_running_loop().call_later(SETTLING, self._publish)

    def settle(self) -> None:
        """Lists at once what :meth:`exclude` has changed."""
        if self._settling is not None:
            self._publish()

    def elsewhere(self, devices: Iterable[Device], *, freeing: bool = False) -> Mapping[str, str]:
        """Under which other name of the resource, or of its pool, hardware of the devices is used, and who has it; by
        device id. ``freeing``: the driver is going to be told that they are free, so what else is freed doesn't count.
        """
        others, own = self._others(), used(self.name, self.usage.value, self.ledger.device, untold=not freeing)
        reasons = (
            (device.id, next(filter(None, (one.says_of(device) for one in others)), "") or within(device, own))
            for device in devices
        )
        return {id_: reason for id_, reason in reasons if reason}

    def worked_on(self, device: Device) -> bool:
        """Whether an earlier driver of this resource hasn't let go of the device."""
        return any(one.resource == self.name and one.says_of(device) for one in self._others())

    @property
    def unsure(self) -> str:
        """Why any device may be in use in another resource of the pool; empty if it is known which are."""
        return next(filter(None, (one.unsure for one in self._others())), "")

    def _others(self) -> Sequence[Used]:
        return () if self._pool is None else self._pool.others(self.name)

    def _tell_pool(self) -> None:
        """Only of news: all resources of the pool read each checkpoint, and most of these say nothing new."""
        if self._pool is None or self._pool.alone:
            return
        if (news := self.used().news) != self._told:
            self._told = news
            self._pool.tell(self.name)

    def _exclude(self, others: Sequence[Used]) -> bool:
        """Works out what can't be given away. Returns whether the list is another one."""
        in_use, now = self.usage.value, device_id
        if in_use.remembers and not self._recalled:
            self._recalled, given = True, in_use.unreleased.items()
            self._shared = self._shared or any(entry.hardware - {now(offered)} for offered, entry in given)
            self._formed = self._formed or any(entry.device not in ("", now(offered)) for offered, entry in given)
            self._odd = not self.ledger.presents(in_use.unreleased)

        # Unless something is in use that may be hardware of another name, no device needs to be looked at.
        own = self.used() if self._shared or self._may_crowd else None
        if not any(one is not None and (one.behind or one.unsure) for one in (own, *others)):
            return self.ledger.exclude({})
        devices, own = self.ledger.devices, own or self.used()
        shares = crowded(devices, self.ledger.ids, own)
        return self.ledger.exclude(excluded(devices.values(), own, others, formed=bool(self._shares.ids)), shares)

    @property
    def _may_crowd(self) -> bool:
        return bool(self.ledger.lost) or self._odd or self._formed

    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        """What containers have no more if the kubelet gives these ids away, as far as that matters here."""
        return self.usage.value.given_up(ids) if self._may_crowd else frozenset()

    def crowded(self, ids: Collection[str], given_up: Collection[str] = ()) -> tuple[str, str] | None:
        """The first of these ids whose device containers have as often already as it has shares, and under which other
        ids they have it; None if there is no such id. There can be one only where something is held under an id that
        isn't offered: a kubelet may name that one, or one that it takes for free before its pod was seen to end.
        ``given_up``: what containers had then, and may have been given away since.
        """
        if not self._may_crowd:
            return None
        holdings = self.usage.value
        over = set(given_up) - holdings.fresh
        in_use = shares_in_use(self.used())
        for id_ in ids:
            if (device := self.ledger.device(id_)) is None:
                continue
            asked = [other for other in ids if (same := self.ledger.device(other)) is not None and same.id == device.id]
            others = dict.fromkeys(i for i in (*in_use.get(device.id, ()), *asked) if i != id_ and i not in over)
            if len(others) >= self._shares.count:
                return id_, ", ".join(others)
        return None

    def look_later(self) -> None:
        """Sets the timer for the next id that may be dropped."""
        self._timer = _cancelled(self._timer)
        if self._closed or not self.ledger.lost:
            return
        holdings = self.usage.value
        drop = self.ledger.next_drop(holdings.held)
        now = self.clock.monotonic()
        delays = [max(0.0, drop - now)] if drop is not None else []
        # the kubelet may name it for long, although no container has it any more
        delays += [until - now for until in map(self.ledger.back_until, holdings.freed) if until > now]
        absent = [id_ for id_ in self.ledger.lost if self.ledger.device(id_) is None]
        if (wait := holdings.look_again(absent)) is not None:
            delays.append(wait)
        if delays:
            self._timer = asyncio.get_running_loop().call_later(min(delays) + 0.001, self.usage.reread)

    def close(self) -> None:
        """Nothing is dropped from the list any more."""
        self._closed = True
        self._timer, self._settling = _cancelled(self._timer), _cancelled(self._settling)

    # the list

    def repeat(self) -> None:
        """Has the kubelet write its checkpoint, as it does for each list (pkg/kubelet/cm/devicemanager/manager.go,
        genericDeviceUpdateCallback, from 1.10 on).
        """
        if self.list.value is not None:
            self.list.notify()

    def _publish(self) -> None:
        self._settling = _cancelled(self._settling)
        offers = self.ledger.offers()
        self.had_healthy = self.had_healthy or any(offer.health.ok for offer in offers.values())
        if self.list.set(offers):
            self.published = self.clock.monotonic()
        self.look_later()


def _differ(new: Offers | None, old: Offers | None) -> bool:
    """Whether a kubelet sees a difference. The reason isn't sent, so another reason makes none."""
    if new is None or old is None or len(new) != len(old):
        return True
    other = ((old.get(id_), new[id_]) for id_ in changed(old, new))
    return any(was is None or (was.health.ok, was.numa_nodes) != (is_.health.ok, is_.numa_nodes) for was, is_ in other)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """None: there is no timer any more."""
    if timer is not None:
        timer.cancel()
    return None

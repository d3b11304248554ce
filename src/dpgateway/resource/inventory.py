"""The present list of one resource, from the driver's list, the holdings, and the time.

Theory of operation. The inventory knows neither drivers nor RPCs; its owner reports the events. The *ledger* has the
ids, their devices and their health. Each event works in two steps, first on the ledger, then on the published list::

    take, fail  the driver has another list, or none                            published at once
    hold        other ids are held: those must stay listed, others may leave    published at once
    use         an Allocate began or failed here                                published after SETTLING
    exclude     the same in another resource of the pool                        published after SETTLING

An exclusion binds Allocates from the first step on, whatever list the kubelet has seen.

Two devices may be the same hardware; so may a device and a grant from a time when names had other meanings. Both are
rare, and scanning 10,000 devices for each Allocate is expensive. So the scan is skipped unless something of the pool is
in use or one of these holds (:meth:`_may_crowd`, :meth:`_exclude`):

    _shared     a device names hardware, or an id was granted with hardware of another name
    _formed     an id may have meant another device under an earlier ``shares.ids``
    _odd        a taken id isn't on the driver's last list
    lost ids    (the ledger's)

``_shared`` and ``_formed`` are never reset: tracking the end of the last such grant isn't worth it. Grants of earlier
gateways count for them once, when the journal has been read (``_recalled``).

The pool hears only of changes (``_told``). An id leaves the list only in :meth:`hold`, so a timer makes the front
reread its sources when the next id may be dropped. The only other timer is SETTLING.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from dpgateway.config import ResourceConfig
from dpgateway.kit.clock import Clock
from dpgateway.kit.observable import Observable, Signal
from dpgateway.model import Device, Health, changed, replaced
from dpgateway.resource.front import NOTED_WITHIN, Usage
from dpgateway.resource.ledger import Ledger
from dpgateway.resource.limit import ListLimit
from dpgateway.resource.pools import Pool
from dpgateway.resource.shares import Offers, clash, device_id
from dpgateway.resource.use import (
    Used,
    counted,
    crowded,
    excluded,
    excluders,
    given_as,
    shares_in_use,
    used,
    within,
)

SETTLING = 0.02
"""Seconds from the start of an Allocate until its exclusions are published. Kubelets write their checkpoint at each
list and after each admission. If both coincide, 1.9 garbles the file, and 1.10 may forget its latest allocation; most
Allocates take a few milliseconds."""

QUIET = 0.4
"""Seconds without an Allocate before the list is emptied: from the kubelet's choice to its call, and from the answer to
its record of it."""


class Inventory:
    """The list of one resource. Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        usage: Usage,
        log: logging.LoggerAdapter[logging.Logger],
        clock: Clock = time,
    ) -> None:
        """``config``: a new ``keep_lost`` takes effect at once, new ``shares`` with the driver's next list, even an
        unchanged one. ``usage`` is reread before an id is dropped; :meth:`hold` then drops it.
        """
        self.list: Observable[Offers | None] = Observable(None, news=_differ)
        """The published list; None until the resource can be offered."""
        self.misfit = Observable("")
        """Why the driver's list can't be offered; empty if it can."""
        self.exclusions = Signal()
        """Notified when the reasons against devices have changed."""
        self.had_healthy = False
        """Whether a published list ever had a Healthy device."""
        self.ledger = Ledger(config)
        self.name = config.value.name
        self._config, self._shares = config, config.value.shares
        config.subscribe(self.look_later)
        self.usage, self.clock, self._log = usage, clock, log
        self._taken: tuple[Device, ...] | None = None
        """The driver's last list, as the base for comparing the next one; None unless the ledger took it whole."""
        self._limit: ListLimit | None = None
        self._deaf = False
        """Whether there is no driver to release to."""
        self._shared, self._formed, self._odd, self._recalled = False, bool(self._shares.ids), False, False
        self._pool = Pool(alone=True)
        self._told: object = None
        """The last news for the pool."""
        self._timer: asyncio.TimerHandle | None = None
        """Rereads the front's sources at the next possible drop."""
        self._settling: asyncio.TimerHandle | None = None
        """Publishes after SETTLING; None while nothing waits to be published."""
        self._closed, self._offered, self._empty = False, True, False
        self._emptying: asyncio.TimerHandle | None = None
        """Empties the list of a resource that isn't offered; None before and after."""
        self._uses = 0
        """The version of ``usage`` when `_emptying` was set."""
        self.published = float("-inf")
        """When the list last changed, in seconds of the monotonic clock."""

    # what is offered

    def offer(self, *, offered: bool) -> None:
        """Lists all devices, or nothing: while another front has them, or is about to. Granting goes on.

        A kubelet from 1.34 on crashes if an id leaves the list during its Allocate. So the kubelet first gets a list
        that has nothing to choose, and the empty one once nothing was allocated for QUIET.
        """
        if offered != self._offered:
            self._offered, self._empty, self._emptying = offered, False, _cancelled(self._emptying)
            if self.list.value is not None:
                self._publish()

    def _empty_later(self) -> None:
        self._uses = self.usage.version
        self._emptying = asyncio.get_running_loop().call_later(QUIET, self._empty_now)

    def _empty_now(self) -> None:
        """Empties the list, unless a device was given since it was last tried, or may be right now."""
        usage = self.usage
        if usage.allocating or usage.value.in_flight or usage.version != self._uses:
            return self._empty_later()
        self._empty, self._emptying = True, None
        return self._publish()

    # the driver's list

    def take(self, devices: tuple[Device, ...], limit: ListLimit | None = None) -> bool:
        """Takes the driver's whole list. A list over the front's ``limit`` changes no ids, only their health. Returns
        whether a held id may have another device now.
        """
        # Under other shares the same devices have other ids, so the last list is no base for comparison.
        self._limit = limit
        before, self._shares = self._shares, self._config.value.shares
        if (before.count, before.ids) != (self._shares.count, self._shares.ids):
            self._taken = None
            self._formed = self._formed or before.ids != self._shares.ids
        new = None if self._taken is None else replaced(self._taken, devices)
        if new == []:
            return False  # most drivers return the same values while nothing changes
        now = self.clock.monotonic()

        # The usual change: a few devices have other values. The list is as long as the last one, which fitted.
        if new is not None and all(was.id == one.id and was.numa_nodes == one.numa_nodes for was, one in new):
            others = tuple([one for _, one in new])
            self.ledger.replace(others, now)
            self._taken = devices

        # A list that doesn't fit changes no ids; a first list that doesn't fit isn't offered at all.
        else:
            fits, listed = self._fits(devices), self.list.value
            if not fits and listed is None:
                return False
            self.ledger.take(devices, now, None if fits or listed is None else listed.keys())
            self._taken, new, others = devices if fits else None, None, devices
            self._odd = not self.ledger.presents(self.usage.value.unreleased)
        self._shared = self._shared or any(device.hardware is not None for device in others)
        self._deaf = False
        self._exclude(self._pool.others(self.name))
        self._publish()
        self._tell_pool()

        # Any larger change may have replaced the device of a held id; of a small one the devices are known.
        if new is None or self.ledger.lost:
            return True
        held = self.usage.value.held or ()
        return any(offered in held for device in others for offered in self.ledger.ids(device.id))

    def fail(self, reason: str, *, overdue: bool, deaf: bool = False) -> None:
        """The driver doesn't answer. ``overdue``: the first list is due, so a list is published without it. ``deaf``:
        the driver can't be told of releases, either.
        """
        # Nothing is Healthy now, so the next list has to be published even if it is the last one again.
        self._taken = None
        self._deaf = deaf
        self.ledger.fail(reason, self.clock.monotonic())
        if overdue or self.list.value is not None:
            self._publish()
        self._tell_pool()

    def _fits(self, devices: tuple[Device, ...]) -> bool:
        # Lost ids stay listed beside the devices, and so may the present ones: the driver's new list may lack them.
        count, form = self._shares.count, self._shares.ids or ""
        failure = clash(tuple(device.id for device in devices), count, form)
        if not failure and (limit := self._limit) is not None:
            lost, present = self.ledger.lost, self.ledger.devices
            besides = limit.bound(lost.values(), lost)
            if present.keys() != {device.id for device in devices}:
                besides += limit.bound(present.values(), present, count)
            failure = limit.too_long(devices, count, form, besides, lambda: self.ledger.after(devices).values())

        # Only changes between fit and misfit are logged, because each list is checked.
        before = self.misfit.value
        self.misfit.set(failure)
        if failure and not before:
            self._log.error("the resource failed: %s", failure, extra={"reason": failure})
        elif before and not failure:
            self._log.info("the resource recovered")
        return not failure

    # the holdings

    def hold(self) -> None:
        """Lists held ids that the driver doesn't list, and drops ids that are no longer held.

        If the list would be too long for a kubelet, only held ids stay on it: those must.
        """
        in_use, before, listed = self.usage.value, set(self.ledger.lost), self.list.value is not None
        self._odd = not self.ledger.presents(in_use.unreleased)
        other = self.ledger.hold(in_use.held, self.clock.monotonic(), in_use.numa_nodes)
        self._recall_meanings()

        # Each new lost id makes the list longer.
        if self.ledger.lost.keys() - before and listed and not self._fits(tuple(self.ledger.devices.values())):
            self.ledger.keep(in_use.held or ())
            self._taken = None

        # Publishing sets the timer, too.
        if (self._exclude(self._pool.others(self.name)) or other) and listed:
            self._publish()
        else:
            self.look_later()
        self._tell_pool()

    def given(self, offered: str) -> Device | None:
        """The present device that was granted under the id; for an unrecorded grant, the device that the id means."""
        name = given_as(self.usage.value, offered)
        return self.ledger.devices.get(name) if name else self.ledger.device(offered)

    def devices_of(self, ids: Iterable[str]) -> set[str]:
        """The devices granted under these ids, present or not: a device that is briefly absent is still held."""
        names = (given_as(self.usage.value, offered) or self.ledger.means(offered) for offered in ids)
        return {name for name in names if name is not None}

    def use(self) -> None:
        """An Allocate began or failed: excludes or readmits the devices that share its hardware."""
        self._recall_meanings()
        self.exclude()
        self._tell_pool()

    def _recall_meanings(self) -> None:
        """Has each lost id mean the device that was granted under it, whatever ``shares`` says now."""
        if self.ledger.lost:
            self.ledger.meant({id_: entry.device for id_, entry in self.usage.value.unreleased.items() if entry.device})

    # shared hardware

    def join(self, pool: Pool) -> None:
        """Leaves its pool for this one: from now on that one's members' hardware is excluded."""
        self._pool, self._told = pool, None
        pool.join(self)
        self.exclude()

    def device(self, offered: str) -> Device | None:
        """The present device of an offered id."""
        return self.ledger.device(offered)

    def used(self) -> Used:
        """Freed ids count as used until their release, unless there is no driver to release them to."""
        return used(self.name, self.usage.value, self.ledger.device, untold=not self._deaf)

    def exclude(self, others: Sequence[Used] | None = None) -> None:
        """Excludes the hardware of ``others``, by default what the rest of the pool uses now, from Allocates at once,
        and on the published list after SETTLING.
        """
        others = self._pool.others(self.name) if others is None else others
        if self._exclude(others) and self.list.value is not None and self._settling is None and not self._closed:
            self._settling = asyncio.get_running_loop().call_later(SETTLING, self._publish)

    def settle(self) -> None:
        """Publishes the changes of :meth:`exclude` now."""
        if self._settling is not None:
            self._publish()

    def elsewhere(self, devices: Iterable[Device], *, freeing: bool = False) -> Mapping[str, str]:
        """The uses of the devices' hardware under other names of the resource or of its pool: a text with the name and
        the holder, by device id. ``freeing``: for a release, so other freed ids don't count.
        """
        others, own = (
            self._pool.others(self.name),
            used(self.name, self.usage.value, self.ledger.device, untold=not freeing),
        )
        reasons = (
            (device.id, next(filter(None, (one.says_of(device) for one in others)), "") or within(device, own))
            for device in devices
        )
        return {id_: reason for id_, reason in reasons if reason}

    def excluders(self, device: Device) -> frozenset[tuple[str, str]] | None:
        """Each use that excludes the device, by resource and offered id; None if there may be others."""
        return excluders(device, self.used(), self._pool.others(self.name))

    def worked_on(self, device: Device) -> bool:
        """Whether a call of an earlier driver of this resource still works on the device."""
        return any(one.resource == self.name and one.says_of(device) for one in self._pool.others(self.name))

    @property
    def unsure(self) -> str:
        """Why any device may be in use in another resource of the pool; empty if their uses are known."""
        return next(filter(None, (one.unsure for one in self._pool.others(self.name))), "")

    def _tell_pool(self) -> None:
        """Tells the pool of changes only: every member reads every checkpoint, and most bring no news."""
        if not self._pool.alone and (news := self.used().news) != self._told:
            self._told = news
            self._pool.tell(self.name)

    def _exclude(self, others: Sequence[Used]) -> bool:
        """Applies the exclusions to the ledger. Returns whether the list may have changed."""
        # Once: a grant of an earlier gateway may have had other hardware, or another device, than its id means now.
        in_use, now = self.usage.value, device_id
        if in_use.remembers and not self._recalled:
            self._recalled, given = True, in_use.unreleased.items()
            self._shared = self._shared or any(entry.hardware - {now(offered)} for offered, entry in given)
            self._formed = self._formed or any(entry.device not in ("", now(offered)) for offered, entry in given)
            self._odd = not self.ledger.presents(in_use.unreleased)

        # Without a use that can concern a device of another name, the scan is skipped.
        own = self.used() if self._shared or self._may_crowd else None
        if any(one is not None and (one.behind or one.unsure) for one in (own, *others)):
            devices, own = self.ledger.devices, own or self.used()
            reasons = excluded(devices.values(), own, others, formed=bool(self._shares.ids))
            shares = crowded(devices, self.ledger.ids, own)
            many = counted(map(devices.__getitem__, reasons), own, others)
            sure = not own.forgotten and not any(one.unsure for one in others)
            changed = self.ledger.exclude(reasons, shares, many, sure=sure)
        else:
            changed = self.ledger.exclude({})
        if changed:
            self.exclusions.notify()
        return changed

    @property
    def _may_crowd(self) -> bool:
        return bool(self.ledger.lost) or self._odd or self._formed

    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        """The ids that must be free if the kubelet allocates these; empty where crowding is impossible."""
        return self.usage.value.given_up(ids) if self._may_crowd else frozenset()

    def crowded(self, ids: Collection[str], given_up: Collection[str] = ()) -> tuple[str, str] | None:
        """The first of these ids whose device has no share left, and the ids that hold its shares; else None. There is
        one only while something is held under an id that isn't offered: the kubelet may ask for that id, or for one
        that it considers free before the front has seen its pod end. ``given_up``: see :meth:`given_up`.
        """
        # An id given up may have been granted again since; the grant counts.
        if not self._may_crowd:
            return None
        holdings = self.usage.value
        over = set(given_up) - holdings.fresh
        in_use = shares_in_use(self.used())
        for id_ in ids:
            if (device := self.ledger.device(id_)) is None:
                continue
            # The request itself may ask for several shares of the device.
            asked = [other for other in ids if (same := self.ledger.device(other)) is not None and same.id == device.id]
            others = dict.fromkeys(i for i in (*in_use.get(device.id, ()), *asked) if i != id_ and i not in over)
            if len(others) >= self._shares.count:
                return id_, ", ".join(others)
        return None

    def look_later(self) -> None:
        """Sets the timer for the next possible drop."""
        self._timer = _cancelled(self._timer)
        # Only lost ids leave the list with time.
        if self._closed or not self.ledger.lost:
            return
        holdings, now = self.usage.value, self.clock.monotonic()
        drop = self.ledger.next_drop(holdings.held)
        delays = [max(0.0, drop - now)] if drop is not None else []
        # a freed id stays held for long, but its release is due once the device had its time to return
        delays += [until - now for until in map(self.ledger.back_until, holdings.freed) if until > now]
        # Nor is there an event when the sources should have noted a grant: an id that they still lack is free.
        if holdings.known and not holdings.granted.keys().isdisjoint(self.ledger.lost):
            delays.append(NOTED_WITHIN)
        if delays:
            self._timer = asyncio.get_running_loop().call_later(min(delays) + 0.001, self.usage.reread)

    def close(self) -> None:
        """Stops the timers: the list stays as it is."""
        self._closed = True
        self._timer, self._settling = _cancelled(self._timer), _cancelled(self._settling)
        self._emptying = _cancelled(self._emptying)

    # the list

    def _publish(self) -> None:
        self._settling = _cancelled(self._settling)
        offers: Offers = {} if self._empty else self.ledger.offers()
        if not self._offered and not self._empty:
            if self._emptying is None and not self._closed:
                self._empty_later()
            # Held ids stay as they are: containers with an Unhealthy one aren't started again.
            taken, away = self.usage.value.last_known, Health.unhealthy("another front is going to offer it")
            found = offers.items()
            offers = {id_: one if id_ in taken else replace(one, health=away, taken=True) for id_, one in found}
        self.had_healthy = self.had_healthy or any(offer.health.ok for offer in offers.values())
        if self.list.set(offers):
            self.published = self.clock.monotonic()
        self.look_later()


def _differ(new: Offers | None, old: Offers | None) -> bool:
    """Whether the kubelet sees a difference. Reasons aren't sent, so they don't count."""
    if new is None or old is None or len(new) != len(old):
        return True
    other = ((old.get(id_), new[id_]) for id_ in changed(old, new))
    return any(was is None or (was.health.ok, was.numa_nodes) != (is_.health.ok, is_.numa_nodes) for was, is_ in other)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancels the timer and returns None, to assign in its place."""
    if timer is not None:
        timer.cancel()
    return None

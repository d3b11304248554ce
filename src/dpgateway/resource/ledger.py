"""Which ids a resource lists, and what each of them means.

An id is listed as long as one of these holds:

- *present*: the driver lists its device, and ``shares`` offers it;
- *held*: the kubelet gave it to a container, or may be doing so now. A kubelet from 1.34 on crashes when such an id
  leaves the list (pkg/kubelet/cm/devicemanager, a read through a nil pointer), and an older one forgets the device;
- *lost* less than ``keep_lost`` ago. Even with ``keep_lost: 0s`` it is first listed Unhealthy for LEAVING seconds: the
  kubelet may have chosen it just before it vanished, and be about to allocate it.

Theory of operation. Everything works over offered ids, after shares, so lowering ``shares`` loses ids just as
unplugging does. A listed id is in exactly one of ``_offers`` (present) and ``lost``. What it means is in ``_meaning``,
unless it is present and its device's own id, as nearly all are. It keeps its meaning as long as it is listed: also when
its device goes, when ``shares`` changes, and over restarts, when it comes from what was written down (:meth:`meant`).

Whether a present id can be given away depends on these, in this order:

    the device's own health     since when it is Unhealthy is in ``_unhealthy_since``, by device
    ``_excluded``               other devices that are the same hardware are in use, by device
    ``crowded``                 containers have its share under an id that isn't offered any more, by offered id
    ``_failure``                the driver doesn't answer, and nothing is Healthy

Offers and the mapping of them are never changed: an offer that stays the same is the same object, so that comparing
lists of 10,000 is cheap, and a list that was published stays as it was.

Times are seconds of one monotonic clock that the caller reads. When to look again is up to the inventory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from dpgateway.config.values import ResourceConfig
from dpgateway.model import Device, Health
from dpgateway.resource.front import Held
from dpgateway.resource.offers import Offer
from dpgateway.resource.shares import device_id, share_id, share_ids

LEAVING = 2.0
"""Seconds that an id stays listed, Unhealthy, before it can leave; the kubelet waits 1 s at most between choosing a
device and allocating it (our own deadline for GetPreferredAllocation)."""


@dataclass(frozen=True, slots=True)
class Lost:
    """An id that is listed though it isn't present."""

    since: float
    reason: str
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an id can't be given to a container."""

    id: str
    reason: str


class Configured(Protocol):
    """What a resource is configured to do now; read where it is used, because it changes in place."""

    @property
    def value(self) -> ResourceConfig: ...


class Ledger:
    """The ids of one resource. One owner; nothing here waits, reads a clock or touches the outside."""

    def __init__(self, config: Configured) -> None:
        """``config``: another ``keep_lost`` counts at once, other ``shares`` with the next list of the driver."""
        self._config = config
        self.shares = config.value.shares
        self.devices: dict[str, Device] = {}
        """The driver's last list, by device id."""
        self.lost: dict[str, Lost] = {}
        """The ids that are listed though they aren't present."""
        self._offers: dict[str, Offer] = {}
        self._meaning: dict[str, str] = {}
        self._unhealthy_since: dict[str, float] = {}
        self._excluded: Mapping[str, str] = {}
        self.crowded: Mapping[str, str] = {}
        self._failure: tuple[str, float] | None = None
        """Why, and since when."""
        self.losses = self.returns = 0
        """How many ids were lost so far, and how many of these came back."""

    @property
    def _keep(self) -> float:
        """Seconds for which a lost id stays listed."""
        return max(self._config.value.keep_lost.total_seconds(), LEAVING)

    def ids(self, device_id: str) -> tuple[str, ...]:
        """Those under which a device is offered, share 0 first."""
        if self.shares.count == 1 and not self.shares.ids:
            return (device_id,)
        return share_ids(device_id, self.shares.count, self.shares.ids or "")

    def _first(self, device_id: str) -> str:
        """What an offer says of share 0."""
        return share_id(device_id, 0, self.shares.ids) if self.shares.ids else ""

    def take(self, devices: Iterable[Device], now: float, only: Collection[str] | None = None) -> None:
        """The driver's new list, the whole truth. ``only``: no other ids may be added (the list would be too long)."""
        before, self.devices = self.devices, {device.id: device for device in devices}
        self.shares, self._failure = self._config.value.shares, None

        # Which ids are present, and what each of them means now.
        gone, self._offers = self._offers, {}
        wanted = None if only is None or self.shares.ids else {device_id(offered) for offered in only}
        for device in self.devices.values():
            self._take_health(device, now)
            for offered in self.ids(device.id) if wanted is None or device.id in wanted else ():
                if only is None or offered in only:
                    self._offers[offered] = self._offer(offered, device, gone.get(offered))
                    if offered != device.id:
                        self._meaning[offered] = device.id
                    else:
                        self._meaning.pop(offered, None)

        # Which were until now, and which are back.
        for offered in [offered for offered in gone if offered not in self._offers]:
            device = before[self._meaning.setdefault(offered, offered)]
            self.lost[offered] = Lost(now, "its device is gone", device.numa_nodes)
            self.losses += 1
        lost = {offered: lost for offered, lost in self.lost.items() if offered not in self._offers}
        self.returns += len(self.lost) - len(lost)
        self.lost = lost
        self._unhealthy_since = {i: since for i, since in self._unhealthy_since.items() if i in self.devices}

    def replace(self, devices: Iterable[Device], now: float) -> None:
        """These devices are other values now, and all else of the driver's last list, the whole of which was taken, is
        as it was.
        """
        self._offers = dict(self._offers)
        for device in devices:
            self.devices[device.id] = device
            self._take_health(device, now)
            for offered in self.ids(device.id):
                self._offers[offered] = self._offer(offered, device, self._offers.get(offered))

    def means(self, offered: str) -> str | None:
        """The device of an offered id, present or lost; None for an id that isn't listed."""
        meaning = self._meaning.get(offered)
        return offered if meaning is None and offered in self._offers else meaning

    def _take_health(self, device: Device, now: float) -> None:
        if device.health.ok:
            self._unhealthy_since.pop(device.id, None)
        else:
            self._unhealthy_since.setdefault(device.id, now)

    def fail(self, reason: str, now: float) -> None:
        """The driver doesn't say what there is: the list stays, and nothing on it is healthy."""
        self._failure = (reason, self._failure[1] if self._failure else now)

    def hold(self, held: Held, now: float, near: Callable[[str], tuple[int, ...]] = lambda _: ()) -> bool:
        """Lists what the kubelet holds and the driver doesn't list, as lost; drops what nobody holds any more.

        ``near``: the NUMA nodes of a held id, which a stricter topology manager wants to find again. Returns whether
        the list changed.
        """
        unlisted = [i for i in held or () if i not in self._offers and i not in self.lost]
        for offered in unlisted:
            self.lost[offered] = Lost(now, "a container holds it, but its device is gone", near(offered))
            self._meaning[offered] = device_id(offered)
        self.losses += len(unlisted)
        dropped = self.droppable(held, now)
        for offered in dropped:
            del self.lost[offered]
            del self._meaning[offered]
        return bool(unlisted or dropped)

    def meant(self, meanings: Mapping[str, str]) -> None:
        """Which devices ids meant when they were given away. ``shares`` may have changed since, so it counts for those
        that aren't present.
        """
        self._meaning |= {i: device for i, device in meanings.items() if i in self.lost and i not in self._offers}

    def keep(self, ids: Collection[str]) -> None:
        """Lists nothing but these ids, because a list of all would be too long."""
        for offered in self._offers.keys() - ids:
            self._meaning.setdefault(offered, offered)
        self._offers = {i: offer for i, offer in self._offers.items() if i in ids}
        self.lost = {i: lost for i, lost in self.lost.items() if i in ids}

    def droppable(self, held: Held, now: float) -> list[str]:
        """The lost ids that may leave the list now."""
        if held is None:
            return []
        return [i for i, lost in self.lost.items() if i not in held and now - lost.since >= self._keep]

    def next_drop(self, held: Held) -> float | None:
        """When an id may leave the list next, if nothing else happens; None: never."""
        if held is None:
            return None
        return min((lost.since + self._keep for i, lost in self.lost.items() if i not in held), default=None)

    def back_until(self, offered: str) -> float:
        """Until when the lost id's device may be back before it is given up; the past for an id that isn't lost."""
        lost = self.lost.get(offered)
        return float("-inf") if lost is None else lost.since + self._keep

    def offers(self) -> Mapping[str, Offer]:
        """The list as it is now, by id."""
        listed = self._offers
        if self.lost:
            listed = listed | {i: self._lost_offer(i, lost) for i, lost in self.lost.items()}
        if self._failure is None:
            return listed
        broken = Health.unhealthy(self._failure[0])
        return {i: replace(offer, health=broken) if offer.health.ok else offer for i, offer in listed.items()}

    def after(self, devices: Collection[Device]) -> dict[str, Offer]:
        """What would be listed if the driver listed ``devices``, apart from the health of those that vanish."""
        shares = self._config.value.shares
        return {**self.offers(), **offers_of(devices, shares.count, shares.ids or "")}

    def exclude(self, excluded: Mapping[str, str], crowded: Mapping[str, str] | None = None) -> bool:
        """Why present devices can't be given away although their driver calls them healthy, by device id; ``crowded``:
        why single shares of them can't, by offered id. Returns whether the list changed.
        """
        crowded = crowded or {}
        changed = _differ(excluded, self._excluded)
        shares = _differ(crowded, self.crowded)
        self._excluded, self.crowded = excluded, crowded
        self._offers = dict(self._offers) if changed or shares else self._offers
        changed |= {meaning for offered in shares if (meaning := self.means(offered)) is not None}
        for device in filter(None, map(self.devices.get, changed)):
            for offered in self.ids(device.id):
                if offered in self._offers:
                    self._offers[offered] = self._offer(offered, device, self._offers[offered])
        return bool(changed)

    def _offer(self, offered: str, device: Device, before: Offer | None) -> Offer:
        """``before``: the one until now, which stays if nothing has changed."""
        health = device.health
        if health.ok and (reason := self._excluded.get(device.id) or self.crowded.get(offered)):
            health = Health.unhealthy(reason)
        if before is not None and before.health == health and before.numa_nodes == device.numa_nodes:
            return before
        return Offer(offered, health, device.numa_nodes, self._first(device.id))

    def _lost_offer(self, offered: str, lost: Lost) -> Offer:
        device = self.device(offered)
        if device is None:
            first = self._first(self._meaning[offered])
            return Offer(offered, Health.unhealthy(lost.reason), lost.numa_nodes, first)
        why = Health.unhealthy("its share isn't offered any more")
        return Offer(offered, why, device.numa_nodes, self._first(device.id))

    def resolve(self, ids: Collection[str], now: float, again: Collection[str] = ()) -> dict[str, Device] | Refusal:
        """The device of each id, all of them present and healthy; or why the first id that isn't so is refused.

        An id whose share is no longer offered still means its device: a 1.8 kubelet allocates again at each start.
        ``again``: the ids of containers that start again, which take nobody's share.
        """
        found = {}
        for offered in ids:
            answer = self._resolve(offered, now)
            if isinstance(answer, Refusal):
                return answer
            if offered in self.crowded and offered not in again:
                return Refusal(offered, f"unhealthy: {self.crowded[offered]}")
            found[offered] = answer
        return found

    def _resolve(self, offered: str, now: float) -> Device | Refusal:
        meaning = self.means(offered)
        if meaning is None:
            return Refusal(offered, "unknown: this resource doesn't offer it")
        device = self.devices.get(meaning)
        if device is None:
            lost = self.lost.get(offered)
            why = f"{lost.reason}, for {now - lost.since:.0f} s" if lost else "its device is gone"
            return Refusal(offered, f"lost: {why}")
        if not device.health.ok:
            seconds = now - self._unhealthy_since.get(device.id, now)
            return Refusal(offered, f"unhealthy for {seconds:.0f} s: {device.health.reason}")
        if device.id in self._excluded:
            return Refusal(offered, f"unhealthy: {self._excluded[device.id]}")
        if self._failure is not None:
            reason, since = self._failure
            return Refusal(offered, f"unhealthy for {now - since:.0f} s: {reason}")
        return device

    def device(self, offered: str) -> Device | None:
        """The device of an offered id while it is present, healthy or not."""
        return self.devices.get(self.means(offered) or "")

    def unhealthy_since(self, offered: str) -> float | None:
        """When the id became one that can't be given away; None if it can be, or if that isn't known."""
        if (lost := self.lost.get(offered)) is not None:
            return lost.since
        known = self._unhealthy_since.get(self.means(offered) or "")
        return known if known is not None or self._failure is None else self._failure[1]

    def presents(self, ids: Mapping[str, object]) -> bool:
        """Whether all of these are present."""
        return ids.keys() <= self._offers.keys()


def offers_of(devices: Collection[Device], shares: int, form: str = "") -> dict[str, Offer]:
    """The offers of these devices alone, by id."""
    first = {device.id: share_id(device.id, 0, form) if form else "" for device in devices}
    return {
        id_: Offer(id_, device.health, device.numa_nodes, first[device.id])
        for device in devices
        for id_ in share_ids(device.id, shares, form)
    }


def _differ(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {key for key in (*one, *other) if one.get(key) != other.get(key)}

"""The ledger: which ids a resource lists, and which device each id means.

An id is listed while one of these holds:

- *present*: the driver lists its device, and ``shares`` offers it;
- *held*: the kubelet gave it to a container, or may be doing so now. A kubelet from 1.34 on crashes when such an id
  leaves the list (pkg/kubelet/cm/devicemanager, a read through a nil pointer), and an older one forgets the device;
- *lost* less than ``keep_lost`` ago. Even with ``keep_lost: 0s`` a lost id stays listed, Unhealthy, for LEAVING
  seconds: the kubelet may have chosen it just before it vanished, and be about to allocate it.

Theory of operation. The ledger works on offered ids, after shares, so lowering ``shares`` loses ids just as unplugging
does. A listed id is in exactly one of ``_offers`` (present) and ``lost``. ``_meaning`` maps ids to devices, except for
present ids equal to their device's id, which are nearly all. An id keeps its meaning while it is listed: when its
device disappears, when ``shares`` changes, and over restarts, from the journal (:meth:`meant`).

A present id is granted unless one of these objects; :meth:`resolve` has the first one's reason:

    ``counted``                 its device is excluded, and yet Healthy, because the scheduler counts its holder
    the device's own health     ``_unhealthy_since`` has the start of the Unhealthy state, by device
    ``_excluded``               the same hardware is in use as another device; reasons by device
    ``_failure``                the driver doesn't answer, so nothing is Healthy
    ``crowded``                 its share is held under an id that is no longer offered; reasons by offered id

While each exclusion is by a use that is known (``_sure``), the offer of an excluded device is ``taken``: metrics don't
count it as broken.

An offer and a mapping of offers are immutable: an unchanged offer is the same object, so comparing lists of 10,000 is
cheap, and a published list is a snapshot.

Times are seconds of one monotonic clock, read by the caller. The inventory decides when to look again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from dpgateway.config.values import ResourceConfig
from dpgateway.kit.observable import Observable
from dpgateway.model import Device, Health
from dpgateway.resource.front import Held
from dpgateway.resource.shares import Offer, device_id, share_id, share_ids

LEAVING = 2.0
"""The least seconds that a lost id stays listed, Unhealthy; the kubelet waits 1 s at most between choosing a device and
allocating it (our own deadline for GetPreferredAllocation)."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A listed id that isn't present."""

    since: float
    reason: str
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an id is refused to a container."""

    id: str
    reason: str


class Ledger:
    """The ids of one resource. It has one owner, and does no I/O: no waiting, no clock."""

    def __init__(self, config: Observable[ResourceConfig]) -> None:
        """``config``: a new ``keep_lost`` takes effect at once, new ``shares`` with the driver's next list."""
        self._config = config
        self.shares = config.value.shares
        self.devices: dict[str, Device] = {}
        """The driver's last list, by device id."""
        self.lost: dict[str, Lost] = {}
        """`lost` contains the listed ids that aren't present, keyed by id."""
        self._offers: dict[str, Offer] = {}
        """`_offers` contains the offers of present ids, keyed by id."""
        self._meaning: dict[str, str] = {}
        """`_meaning` contains the device id, keyed by an id that is or was listed; a present id without an entry means
        itself.
        """
        self._unhealthy_since: dict[str, float] = {}
        self._excluded: Mapping[str, str] = {}
        self._sure = False
        """Whether all exclusions are uses that are known."""
        self.crowded: Mapping[str, str] = {}
        self.counted: frozenset[str] = frozenset()
        """The ids of excluded devices that stay Healthy."""
        self._failure: tuple[str, float] | None = None
        """The driver's failure and its start; None while the driver answers."""
        self.losses = self.returns = 0
        """Counters of ids lost, and of lost ids that came back."""

    @property
    def keep_lost(self) -> float:
        """Seconds that a lost id stays listed."""
        return max(self._config.value.keep_lost.total_seconds(), LEAVING)

    def ids(self, device_id: str) -> tuple[str, ...]:
        """The ids under which a device is offered, share 0 first."""
        if self.shares.count == 1 and not self.shares.ids:
            return (device_id,)
        return share_ids(device_id, self.shares.count, self.shares.ids or "")

    def take(self, devices: Iterable[Device], now: float, only: Collection[str] | None = None) -> None:
        """Takes the driver's whole new list. ``only``: no other ids are offered (the list would be too long)."""
        before, self.devices = self.devices, {device.id: device for device in devices}
        self.shares, self._failure = self._config.value.shares, None

        # The present ids and their meanings.
        gone, self._offers = self._offers, {}
        wanted = None if only is None or self.shares.ids else {device_id(offered) for offered in only}
        for device in self.devices.values():
            self._put(device, now, gone, only if wanted is None or device.id in wanted else ())

        # Ids that just left the offers are lost, with the meaning that they had; lost ids on the offers have returned.
        for offered in [offered for offered in gone if offered not in self._offers]:
            device = before[self._meaning.setdefault(offered, offered)]
            self.lost[offered] = Lost(now, "its device is gone", device.numa_nodes)
            self.losses += 1
        lost = {offered: lost for offered, lost in self.lost.items() if offered not in self._offers}
        self.returns += len(self.lost) - len(lost)
        self.lost = lost
        self._unhealthy_since = {i: since for i, since in self._unhealthy_since.items() if i in self.devices}

    def replace(self, devices: Iterable[Device], now: float) -> None:
        """Takes a list that differs from the last one, which was taken whole, only in the values of these devices."""
        self._offers = dict(self._offers)  # the old mapping may be published
        for device in devices:
            self.devices[device.id] = device
            self._put(device, now, self._offers)

    def _put(
        self, device: Device, now: float, before: Mapping[str, Offer], only: Collection[str] | None = None
    ) -> None:
        """Offers the device under its ids, or under ``only`` some of them. ``before``: the earlier offers."""
        if device.health.ok:
            self._unhealthy_since.pop(device.id, None)
        else:
            self._unhealthy_since.setdefault(device.id, now)
        for offered in self.ids(device.id):
            if only is None or offered in only:
                self._offers[offered] = self._offer(offered, device, before.get(offered))
                # An id that equals its device's needs no entry, and nearly all do.
                if offered != device.id:
                    self._meaning[offered] = device.id
                else:
                    self._meaning.pop(offered, None)

    def means(self, offered: str) -> str | None:
        """The device id that an id means, present or lost; None if it was never listed, or was lost and dropped."""
        meaning = self._meaning.get(offered)
        return offered if meaning is None and offered in self._offers else meaning

    def fail(self, reason: str, now: float) -> None:
        """The driver doesn't answer: the list stays, and nothing on it is Healthy."""
        self._failure = (reason, self._failure[1] if self._failure else now)

    def hold(self, held: Held, now: float, near: Callable[[str], tuple[int, ...]] = lambda _: ()) -> bool:
        """Lists held ids without a device as lost, and drops lost ids that are no longer held and past ``keep_lost``.

        ``near``: the NUMA nodes of a held id, which a strict topology manager compares on readmission. Returns whether
        the list changed.
        """
        # The kubelet may hold ids that this gateway never listed: they are in its checkpoint from before.
        differs = False
        for offered in held or ():
            if offered not in self._offers and offered not in self.lost:
                self.lost[offered] = Lost(now, "a container holds it, but its device is gone", near(offered))
                self._meaning[offered] = device_id(offered)
                self.losses += 1
                differs = True

        # While the held ids are unknown, any lost id may be held.
        if held is not None:
            for offered, lost in tuple(self.lost.items()):
                if offered not in held and now - lost.since >= self.keep_lost:
                    del self.lost[offered]
                    del self._meaning[offered]
                    differs = True
        return differs

    def meant(self, meanings: Mapping[str, str]) -> None:
        """Restores the devices that lost ids meant when they were granted; ``shares`` may have changed since."""
        self._meaning |= {i: device for i, device in meanings.items() if i in self.lost and i not in self._offers}

    def keep(self, ids: Collection[str]) -> None:
        """Lists only these ids, because the whole list would be too long."""
        # An id that leaves the list keeps its meaning, because a kubelet may still allocate it.
        for offered in self._offers.keys() - ids:
            self._meaning.setdefault(offered, offered)
        self._offers = {i: offer for i, offer in self._offers.items() if i in ids}
        self.lost = {i: lost for i, lost in self.lost.items() if i in ids}

    def next_drop(self, held: Held) -> float | None:
        """When the next id may leave the list without another event; None: never."""
        if held is None:
            return None
        return min((lost.since + self.keep_lost for i, lost in self.lost.items() if i not in held), default=None)

    def offers(self) -> Mapping[str, Offer]:
        """The present list, keyed by id."""
        listed = self._offers
        if self.lost:
            listed, placed = dict(listed), any(device.numa_nodes for device in self.devices.values())
            for offered, lost in self.lost.items():
                # Its share may have left the list while its device is present.
                device = self.device(offered)
                why = lost.reason if device is None else "its share isn't offered any more"
                nodes = lost.numa_nodes if device is None else device.numa_nodes
                # Kubelets 1.20 to 1.22 note node 0 for a device without any. If no other device had a node, a strict
                # topology manager would refuse each pod (deviceHasTopologyAlignment).
                nodes = nodes if placed or nodes != (0,) else ()
                first = share_id(self._meaning[offered], 0, self.shares.ids) if self.shares.ids else ""
                listed[offered] = Offer(offered, Health.unhealthy(why), nodes, first)
        if self._failure is None:
            return listed

        # An Unhealthy offer keeps its own reason.
        broken = Health.unhealthy(self._failure[0])
        return {i: replace(offer, health=broken) if offer.health.ok else offer for i, offer in listed.items()}

    def after(self, devices: Collection[Device]) -> dict[str, Offer]:
        """The list if the driver listed ``devices``; vanishing ids keep their present health."""
        shares = self._config.value.shares
        return {**self.offers(), **offers_of(devices, shares.count, shares.ids or "")}

    def exclude(
        self,
        excluded: Mapping[str, str],
        crowded: Mapping[str, str] | None = None,
        counted: Mapping[str, int] | None = None,
        *,
        sure: bool = False,
    ) -> bool:
        """Sets the reasons against present Healthy devices, by device id, and against single shares (``crowded``), by
        offered id. ``counted``: how many ids of an excluded device stay Healthy; ``sure``: the reasons are uses that
        are known. Returns whether any of it changed.
        """
        # The usual case: nothing is excluded, and nothing was.
        if not (excluded or crowded or counted or self._excluded or self.crowded or self.counted):
            return False

        # Only devices whose reasons changed get new offers: 10,000 devices are too many for each Allocate. A use that
        # was known all the time is no fault, once the others are known, too.
        crowded = crowded or {}
        changed = _differ(excluded, self._excluded)
        shares = _differ(crowded, self.crowded)
        if sure != self._sure:
            changed |= excluded.keys()
            shares |= crowded.keys()
        self._excluded, self.crowded, self._sure, before = excluded, crowded, sure, self.counted
        self.counted = frozenset(id_ for name, many in (counted or {}).items() for id_ in self.ids(name)[:many])
        shares |= before ^ self.counted
        self._offers = dict(self._offers) if changed or shares else self._offers
        changed |= {meaning for offered in shares if (meaning := self.means(offered)) is not None}
        for device in filter(None, map(self.devices.get, changed)):
            for offered in self.ids(device.id):
                if offered in self._offers:
                    self._offers[offered] = self._offer(offered, device, self._offers[offered])
        return bool(changed)

    def _offer(self, offered: str, device: Device, before: Offer | None) -> Offer:
        """``before``: the previous offer, returned if it is unchanged."""
        health, taken = device.health, False
        if health.ok and (reason := self._excluded.get(device.id) or self.crowded.get(offered)):
            taken = self._sure and offered not in self.counted
            health = health if offered in self.counted else Health.unhealthy(reason)
        same = before is not None and before.health == health and before.taken == taken
        if before is not None and same and before.numa_nodes == device.numa_nodes:
            return before
        first = share_id(device.id, 0, self.shares.ids) if self.shares.ids else ""
        return Offer(offered, health, device.numa_nodes, first, taken)

    def resolve(
        self, ids: Collection[str], now: float, restarting: Collection[str] = ()
    ) -> dict[str, Device] | Refusal:
        """The present, Healthy device of each id; or the first id's Refusal.

        An id whose share is no longer offered still means its device: a 1.8 kubelet allocates again at each start.
        ``restarting``: ids of containers that start again, which take no other container's share.
        """
        found = {}
        for offered in ids:
            device = self.device(offered)
            # The device's own reasons come first, because they are more specific than the driver's failure.
            if device is None:
                if self.means(offered) is None:
                    reason = "unknown: this resource doesn't offer it"
                elif lost := self.lost.get(offered):
                    reason = f"lost: {lost.reason}, for {now - lost.since:.0f} s"
                else:
                    reason = "lost: its device is gone"
            elif offered in self.counted and (withheld := self.withheld(offered)):
                reason = f"withheld: {withheld}"
            elif not device.health.ok:
                seconds = now - self._unhealthy_since.get(device.id, now)
                reason = f"unhealthy for {seconds:.0f} s: {device.health.reason}"
            elif device.id in self._excluded:
                reason = f"unhealthy: {self._excluded[device.id]}"
            elif self._failure is not None:
                reason = f"unhealthy for {now - self._failure[1]:.0f} s: {self._failure[0]}"
            # A container that starts again has its share already.
            elif offered in self.crowded and offered not in restarting:
                reason = f"unhealthy: {self.crowded[offered]}"
            else:
                found[offered] = device
                continue
            return Refusal(offered, reason)
        return found

    def excluded(self, device_id: str) -> str:
        """Why the device is withheld: its hardware is in use as another device, or may be. Empty if it isn't."""
        return self._excluded.get(device_id, "")

    def withheld(self, offered: str) -> str:
        """Why a listed id isn't given away although it is Healthy; empty for all others."""
        device = self.device(offered) if offered in self.counted else None
        return "" if device is None or not device.health.ok else self.excluded(device.id)

    def device(self, offered: str) -> Device | None:
        """The device of an offered id while it is present, healthy or not."""
        return self.devices.get(self.means(offered) or "")

    def unhealthy_since(self, offered: str) -> float | None:
        """When the id was lost or became Unhealthy; None if it is neither, or the time is unknown."""
        if (lost := self.lost.get(offered)) is not None:
            return lost.since
        known = self._unhealthy_since.get(self.means(offered) or "")
        return known if known is not None or self._failure is None else self._failure[1]

    def presents(self, ids: Mapping[str, object]) -> bool:
        """Whether all of these ids are present."""
        return ids.keys() <= self._offers.keys()


def offers_of(devices: Collection[Device], shares: int, form: str = "") -> dict[str, Offer]:
    """The offers of these devices alone, keyed by id."""
    first = {device.id: share_id(device.id, 0, form) if form else "" for device in devices}
    return {
        id_: Offer(id_, device.health, device.numa_nodes, first[device.id])
        for device in devices
        for id_ in share_ids(device.id, shares, form)
    }


def _differ(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {key for key in (*one, *other) if one.get(key) != other.get(key)}

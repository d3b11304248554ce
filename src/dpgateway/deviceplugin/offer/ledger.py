"""Which ids a resource lists, and what each of them means.

An id is listed as long as one of these holds:

- *present*: the driver lists its device, and ``shares`` offers it;
- *held*: the kubelet gave it to a container, or may be doing so now. A kubelet from 1.34 on crashes when such an id
  leaves the list (pkg/kubelet/cm/devicemanager, a read through a nil pointer), and an older one forgets the device;
- *lost* less than ``keep_lost`` ago. Even with ``keep_lost: 0s`` it is first listed Unhealthy for LEAVING seconds: the
  kubelet may have chosen it just before it vanished, and be about to allocate it.

Everything here works over offered ids, after shares, so lowering ``shares`` loses ids just as unplugging does. Times
are seconds of one monotonic clock that the caller reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from dpgateway.deviceplugin.offer.shares import device_id, share_ids
from dpgateway.model import Device, Health, Offer

LEAVING = 2.0
"""Seconds that an id stays listed, Unhealthy, before it can leave; the kubelet waits 1 s at most between choosing a
device and allocating it (our own deadline for GetPreferredAllocation)."""

NOWHERE: Mapping[str, tuple[int, ...]] = {}

Held = frozenset[str] | None
"""The ids that the kubelet holds; None when that can't be known, and then nothing is dropped."""


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


class Ledger:
    """The ids of one resource. One owner; nothing here waits, reads a clock or touches the outside."""

    def __init__(self, shares: int, keep_lost: float) -> None:
        """``shares``: ids per device; ``keep_lost``: seconds."""
        self._shares = shares
        self._keep = max(keep_lost, LEAVING)
        self._devices: dict[str, Device] = {}
        self._present: dict[str, str] = {}
        self._lost: dict[str, Lost] = {}
        self._meaning: dict[str, str] = {}
        self._unhealthy_since: dict[str, float] = {}
        self._failure: tuple[str, float] | None = None
        self._offers: dict[str, Offer] = {}
        """Of present ids, as they were made."""

    def take(self, devices: Iterable[Device], now: float, only: Collection[str] | None = None) -> None:
        """The driver's new list, the whole truth. ``only``: no other ids may be added (the list would be too long)."""
        before, self._devices = self._devices, {device.id: device for device in devices}
        self._failure = None
        gone, self._present = self._present, {}
        wanted = None if only is None else {device_id(offered) for offered in only}
        for device in self._devices.values():
            if wanted is not None and device.id not in wanted:
                continue
            for offered in share_ids(device.id, self._shares):
                if only is None or offered in only:
                    self._present[offered] = device.id
                    self._meaning[offered] = device.id
        for offered, device_name in gone.items():
            if offered not in self._present:
                self._lost[offered] = Lost(now, "its device is gone", before[device_name].numa_nodes)
        self._lost = {offered: lost for offered, lost in self._lost.items() if offered not in self._present}
        since = self._unhealthy_since
        self._unhealthy_since = {d.id: since.get(d.id, now) for d in self._devices.values() if not d.health.ok}

    def fail(self, reason: str, now: float) -> None:
        """The driver doesn't say what there is: the list stays, and nothing on it is healthy."""
        self._failure = (reason, self._failure[1] if self._failure else now)

    def hold(self, held: Held, now: float, near: Mapping[str, tuple[int, ...]] = NOWHERE) -> bool:
        """Lists what the kubelet holds and the driver doesn't list, as lost; drops what nobody holds any more.

        ``near``: the NUMA nodes of held ids, which a stricter topology manager wants to find again. True if the list
        changed.
        """
        unlisted = [i for i in held or () if i not in self._present and i not in self._lost]
        for offered in unlisted:
            self._lost[offered] = Lost(now, "a container holds it, but its device is gone", near.get(offered, ()))
            self._meaning[offered] = device_id(offered)
        dropped = self.droppable(held, now)
        for offered in dropped:
            del self._lost[offered]
            del self._meaning[offered]
        return bool(unlisted or dropped)

    def droppable(self, held: Held, now: float) -> list[str]:
        """The lost ids that may leave the list now."""
        if held is None:
            return []
        return [i for i, lost in self._lost.items() if i not in held and now - lost.since >= self._keep]

    def next_drop(self, held: Held) -> float | None:
        """When an id may leave the list next, if nothing else happens; None: never."""
        if held is None:
            return None
        return min((lost.since + self._keep for i, lost in self._lost.items() if i not in held), default=None)

    def offers(self) -> dict[str, Offer]:
        """The list as it is now, by id."""
        self._offers = {i: self._offer(i, self._devices[d]) for i, d in self._present.items()}
        listed = self._offers | {i: self._lost_offer(i, lost) for i, lost in self._lost.items()}
        if self._failure is None:
            return listed
        broken = Health.unhealthy(self._failure[0])
        return {i: replace(offer, health=broken) if offer.health.ok else offer for i, offer in listed.items()}

    def after(self, devices: Iterable[Device]) -> dict[str, Offer]:
        """What would be listed if the driver listed ``devices``, apart from the health of those that vanish."""
        return self.offers() | {i: self._offer(i, d) for d in devices for i in share_ids(d.id, self._shares)}

    def _offer(self, offered: str, device: Device) -> Offer:
        """The same value as long as nothing changes: comparing long lists is cheap then."""
        offer = self._offers.get(offered)
        if offer is None or offer.health != device.health or offer.numa_nodes != device.numa_nodes:
            offer = self._offers[offered] = Offer(offered, device.health, device.numa_nodes)
        return offer

    def _lost_offer(self, offered: str, lost: Lost) -> Offer:
        device = self.device(offered)
        if device is None:
            return Offer(offered, Health.unhealthy(lost.reason), lost.numa_nodes)
        return Offer(offered, Health.unhealthy("a container holds it, but its share is gone"), device.numa_nodes)

    def resolve(self, ids: Collection[str], now: float) -> dict[str, Device] | Refusal:
        """The device of each id, all of them present and healthy; or why the first one that isn't can't be had.

        An id whose share is no longer offered still means its device: a 1.8 kubelet allocates again at each start.
        """
        found = {}
        for offered in ids:
            answer = self._resolve(offered, now)
            if isinstance(answer, Refusal):
                return answer
            found[offered] = answer
        return found

    def _resolve(self, offered: str, now: float) -> Device | Refusal:
        meaning = self._meaning.get(offered)
        if meaning is None:
            return Refusal(offered, "unknown: this resource doesn't offer it")
        device = self._devices.get(meaning)
        if device is None:
            lost = self._lost.get(offered)
            return Refusal(offered, f"lost: {lost.reason if lost else 'its device is gone'}{_for(lost, now)}")
        if not device.health.ok:
            seconds = now - self._unhealthy_since.get(device.id, now)
            return Refusal(offered, f"unhealthy for {seconds:.0f} s: {device.health.reason}")
        if self._failure is not None:
            reason, since = self._failure
            return Refusal(offered, f"unhealthy for {now - since:.0f} s: {reason}")
        return device

    def device(self, offered: str) -> Device | None:
        """The device of an offered id while it is present, healthy or not."""
        return self._devices.get(self._meaning.get(offered, ""))

    @property
    def lost(self) -> Collection[str]:
        """The ids that are listed though they aren't present."""
        return self._lost.keys()

    @property
    def devices(self) -> Mapping[str, Device]:
        """The driver's last list, by device id."""
        return self._devices


def _for(lost: Lost | None, now: float) -> str:
    return f", for {now - lost.since:.0f} s" if lost else ""

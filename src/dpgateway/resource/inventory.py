"""The present list of one resource, from the driver's list, the holdings, and the time.

Theory of operation. The inventory knows neither drivers nor RPCs; its owner reports the events. The *ledger* has the
ids, their devices and their health; the *exclusion* withholds devices whose hardware is in use; the *list* is what is
published of the ledger. Each event works in two steps, first on the ledger, then on the list::

    take, fail     the driver has another list, or none                            published at once
    hold           other ids are held: those must stay listed, others may leave    published at once
    uses_changed   of the exclusion: an Allocate began or failed here              published after PUBLISH_DELAY
    exclusion      the same in another resource of the pool                        published after PUBLISH_DELAY

An id leaves the ledger only in :meth:`hold`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from dpgateway.config import ResourceConfig
from dpgateway.kit.clock import Clock
from dpgateway.kit.observable import Observable
from dpgateway.model import Device, replaced
from dpgateway.resource.exclusion import Exclusion
from dpgateway.resource.front import Usage
from dpgateway.resource.ledger import Ledger
from dpgateway.resource.limit import ListLimit
from dpgateway.resource.offered import OfferedList
from dpgateway.resource.shares import clash
from dpgateway.resource.use import given_as


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
        self.name, self.usage, self.clock = config.value.name, usage, clock
        self.ledger = Ledger(config)
        self.list = OfferedList(self.ledger, usage, clock)
        """What is published."""
        self.exclusion = Exclusion(self.name, self.ledger, usage)
        """The devices whose hardware is in use under another name."""
        self.exclusion.subscribe(self.list.publish_later)
        self.rejected = Observable("")
        """Why the driver's list is rejected, so its ids aren't offered; empty if it isn't."""
        self._config, self._shares, self._log = config, config.value.shares, log
        config.subscribe(self.list.look_later)
        self._taken: tuple[Device, ...] | None = None
        """The driver's last list, as the base for comparing the next one; None unless the ledger took it whole."""
        self._limit: ListLimit | None = None

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
            self.exclusion.compare()
        self.exclusion.listed(others)
        self.list.publish()
        self.exclusion.tell_pool()

        # Any larger change may have replaced the device of a held id; of a small one the devices are known.
        if new is None or self.ledger.lost:
            return True
        held = self.usage.value.held or frozenset()
        return bool(held) and any(offered in held for device in others for offered in self.ledger.ids(device.id))

    def fail(self, reason: str, *, overdue: bool, deaf: bool = False) -> None:
        """The driver doesn't answer. ``overdue``: the first list is due, so a list is published without it. ``deaf``:
        the driver can't be told of releases, either.
        """
        # Nothing is Healthy now, so the next list has to be published even if it is the last one again.
        self._taken = None
        self.ledger.fail(reason, self.clock.monotonic())
        if overdue or self.list.value is not None:
            self.list.publish()
        self.exclusion.failed(deaf=deaf)

    def _fits(self, devices: tuple[Device, ...]) -> bool:
        """Whether these devices can be offered; sets ``rejected``, and logs a change of it."""
        # Lost ids stay listed beside the devices, and so may the present ones: the driver's new list may lack them, or
        # they get fewer ids, or those of another form.
        count, form = self._shares.count, self._shares.ids or ""
        failure = clash(tuple(device.id for device in devices), count, form)
        if not failure and (limit := self._limit) is not None:
            lost, present = self.ledger.lost, self.ledger.devices
            besides = limit.bound(lost.values(), lost)
            shares = self.ledger.shares
            if (shares.count, shares.ids or "") != (count, form):
                listed = self.ledger.offers()
                besides = limit.bound(listed.values(), listed)
            elif present.keys() != {device.id for device in devices}:
                besides += limit.bound(present.values(), present, count)
            failure = limit.too_long(devices, count, form, besides, lambda: self.ledger.after(devices).values())

        # Not each rejection is logged, because each list is checked.
        before = self.rejected.value
        self.rejected.set(failure)
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
        in_use, before, published = self.usage.value, set(self.ledger.lost), self.list.value is not None
        self.exclusion.compare()
        changed = self.ledger.hold(in_use.held, self.clock.monotonic(), in_use.numa_nodes)
        if self.ledger.lost:
            self.exclusion.recall()

        # Each new lost id makes the list longer.
        if self.ledger.lost.keys() - before and published and not self._fits(tuple(self.ledger.devices.values())):
            self.ledger.keep(in_use.held or ())
            self._taken = None

        # Publishing sets the timer for lost ids, too.
        excluded = self.exclusion.version
        self.exclusion.exclude()
        if published and (changed or self.exclusion.version != excluded):
            self.list.publish()
        elif before or self.ledger.lost:
            self.list.look_later()
        self.exclusion.tell_pool()

    def given(self, offered: str) -> Device | None:
        """The present device that was granted under the id; for an unrecorded grant, the device that the id means."""
        name = given_as(self.usage.value, offered)
        return self.ledger.devices.get(name) if name else self.ledger.device(offered)

    def devices_of(self, ids: Iterable[str]) -> set[str]:
        """The devices granted under these ids, present or not: a device that is briefly absent is still held."""
        names = (given_as(self.usage.value, offered) or self.ledger.means(offered) for offered in ids)
        return {name for name in names if name is not None}

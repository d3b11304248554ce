"""The published list of one resource: what a front offers, of what the ledger lists, and when.

Theory of operation. The list is a snapshot of the ledger. Its owner publishes it at once when devices, health or held
ids have changed. An exclusion is published after PUBLISH_DELAY, since most come with an Allocate. An id leaves the
ledger only when the front's sources are read, so a timer makes the front reread them when the next id may be dropped.

While another front is going to offer the devices, the list is emptied, in two steps: a kubelet from 1.34 on crashes if
an id leaves the list during its Allocate. So it first gets a list that has nothing to choose, and the empty one once
nothing was allocated for QUIET.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dpgateway.kit.clock import Clock
from dpgateway.kit.observable import Observable
from dpgateway.model import Health, changed
from dpgateway.resource.front import NOTED_WITHIN, Usage
from dpgateway.resource.ledger import Ledger
from dpgateway.resource.shares import Offers

PUBLISH_DELAY = 0.02
"""Seconds from the start of an Allocate until its exclusions are published. Kubelets write their checkpoint at each
list and after each admission. If both coincide, 1.9 garbles the file, and 1.10 may forget its latest allocation; most
Allocates take a few milliseconds."""

QUIET = 0.4
"""Seconds without an Allocate before the list is emptied: from the kubelet's choice to its call, and from the answer to
its record of it."""


class OfferedList(Observable[Offers | None]):
    """The list, keyed by id; None until the resource can be offered."""

    def __init__(self, ledger: Ledger, usage: Usage, clock: Clock) -> None:
        super().__init__(None, news=_differ)
        self.had_healthy = False
        """Whether it ever had a Healthy device."""
        self.since = float("-inf")
        """When it last changed, in seconds of the monotonic clock."""
        self._ledger, self._usage, self._clock = ledger, usage, clock
        self._drop: asyncio.TimerHandle | None = None
        """Rereads the front's sources at the next possible drop."""
        self._settling: asyncio.TimerHandle | None = None
        """Publishes after PUBLISH_DELAY; None while nothing waits to be published."""
        self._closed, self._offered, self._empty = False, True, False
        self._emptying: asyncio.TimerHandle | None = None
        """Empties the list of a resource that isn't offered; None before and after."""
        self._uses = 0
        """The version of ``usage`` when `_emptying` was set."""

    def publish(self) -> None:
        """Publishes the ledger's list now."""
        self._settling = _cancelled(self._settling)
        offers: Offers = {} if self._empty else self._ledger.offers()
        if not self._offered and not self._empty:
            if self._emptying is None and not self._closed:
                self._empty_later()
            # Held ids stay as they are: containers with an Unhealthy one aren't started again.
            taken, away = self._usage.value.last_known, Health.unhealthy("another front is going to offer it")
            found = offers.items()
            offers = {id_: one if id_ in taken else replace(one, health=away, taken=True) for id_, one in found}
        self.had_healthy = self.had_healthy or any(offer.health.ok for offer in offers.values())
        if self.set(offers):
            self.since = self._clock.monotonic()
        self.look_later()

    def publish_later(self) -> None:
        """Publishes it after PUBLISH_DELAY, once it was published at all."""
        if self.value is not None and self._settling is None and not self._closed:
            self._settling = asyncio.get_running_loop().call_later(PUBLISH_DELAY, self.publish)

    def flush(self) -> None:
        """Publishes at once what waits for PUBLISH_DELAY."""
        if self._settling is not None:
            self.publish()

    def look_later(self) -> None:
        """Sets the timer for the next possible drop."""
        self._drop = _cancelled(self._drop)
        # Only lost ids leave the list with time.
        if self._closed or not self._ledger.lost:
            return
        in_use, now = self._usage.value, self._clock.monotonic()
        drop = self._ledger.next_drop(in_use.held)
        delays = [max(0.0, drop - now)] if drop is not None else []
        # No event tells that NOTED_WITHIN is over: a granted id that the sources still lack by then is free.
        if in_use.known and not in_use.granted.keys().isdisjoint(self._ledger.lost):
            delays.append(NOTED_WITHIN)
        if delays:
            self._drop = asyncio.get_running_loop().call_later(min(delays) + 0.001, self._usage.reread)

    def close(self) -> None:
        """Stops the timers: the list stays as it is."""
        self._closed = True
        self._drop, self._settling = _cancelled(self._drop), _cancelled(self._settling)
        self._emptying = _cancelled(self._emptying)

    # a front that doesn't offer the devices

    def offer(self, *, offered: bool) -> None:
        """Lists all devices, or nothing: while another front has them, or is about to. Granting goes on."""
        if offered != self._offered:
            self._offered, self._empty, self._emptying = offered, False, _cancelled(self._emptying)
            if self.value is not None:
                self.publish()

    def _empty_later(self) -> None:
        self._uses = self._usage.version
        self._emptying = asyncio.get_running_loop().call_later(QUIET, self._empty_now)

    def _empty_now(self) -> None:
        """Empties the list, unless a device was given since it was last tried, or may be right now."""
        usage = self._usage
        if usage.grant_under_way or usage.version != self._uses:
            return self._empty_later()
        self._empty, self._emptying = True, None
        return self.publish()


def _differ(new: Offers | None, old: Offers | None) -> bool:
    """Whether the kubelet sees a difference. Reasons aren't sent, so they don't count."""
    if new is None or old is None or len(new) != len(old):
        return True
    for id_ in changed(old, new):
        was, is_ = old.get(id_), new[id_]
        if was is None or (was.health.ok, was.numa_nodes) != (is_.health.ok, is_.numa_nodes):
            return True
    return False


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancels the timer and returns None, to assign in its place."""
    if timer is not None:
        timer.cancel()
    return None

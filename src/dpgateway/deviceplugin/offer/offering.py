"""What one resource offers to the kubelet now.

Brings together the driver's list, what the kubelet holds, and time; keeps the ledger and publishes the inventory. Knows
neither drivers nor RPCs: the list lane and the device plugin tell it what happened.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS, ListEncoder
from dpgateway.deviceplugin.offer.inventory import Inventory
from dpgateway.deviceplugin.offer.ledger import NOWHERE, Held, Ledger, Refusal
from dpgateway.model import Device, Health, Offer

LARGEST_LIST = 4 * 1024 * 1024
"""Bytes. A kubelet from 1.10 on ends the stream that sends it more (grpc-go's default); 1.8 and 1.9 would take it, but
their node is upgraded one day."""

_UNHEALTHY_GROWS = 4
"""Bytes that an id's entry grows at most when it turns Unhealthy: the word, and the lengths in front of it."""

_WORST = Health.unhealthy("it may be one day")

_SMALLEST_ENTRY = 15
"""Bytes of an Unhealthy id's entry without the id: the word, three tags and lengths."""

SETTLED = 10.0
"""Seconds after an Allocate within which the kubelet's checkpoint may have been written for another reason before the
kubelet noted what it allocated; later, what the file says is true."""

_CLOCK_STEP = 0.02
"""Seconds by which a file's time may lag behind the clock: the kernel stamps files with its last tick."""


class Clock(Protocol):
    """The module ``time``, or what a test says."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...


def too_long(devices: Sequence[Device], shares: int) -> str | None:
    """Why no kubelet would take the list of ``devices``; None if it would."""
    return _too_long(devices, shares, Ledger(shares, 0.0), ListEncoder(APIS[0]))


def _too_long(devices: Sequence[Device], shares: int, ledger: Ledger, encoder: ListEncoder) -> str | None:
    """The same, with what ``ledger`` lists besides. A list must be short enough even if everything is Unhealthy."""
    count = len(devices) * shares
    size = shares * sum(len(device.id) + _SMALLEST_ENTRY for device in devices)
    if size <= LARGEST_LIST:  # else it needn't even be made
        offers = ledger.after(devices).values()
        count = len(offers)
        size = len(encoder.encode(offers))
        if size + _UNHEALTHY_GROWS * count > LARGEST_LIST:  # else it needn't be made twice
            size = len(ListEncoder(APIS[0]).encode(replace(offer, health=_WORST) for offer in offers))
    if size <= LARGEST_LIST:
        return None
    return (
        f"the list of {count} ids takes {size} bytes or more, and the kubelet accepts {LARGEST_LIST}; "
        "offer fewer devices, fewer shares, or shorter ids"
    )


class Offering:
    """One resource's list. Used from the event loop only."""

    def __init__(
        self,
        config: ResourceConfig,
        log: logging.LoggerAdapter[logging.Logger],
        reread: Callable[[], None],
        clock: Clock = time,
    ) -> None:
        """``reread`` reads the kubelet's checkpoint anew and tells :meth:`hold`; called before an id is dropped."""
        self.inventory = Inventory()
        self.failure: str | None = None
        """Why the resource can't be offered as its driver lists it."""
        self.known = asyncio.Event()
        """Set once it is known what containers hold: a first list without it may miss an id, and crash the kubelet."""
        self.released: Callable[[list[Device]], None] = lambda _: None
        """Told which devices no container holds any more."""
        self._name = config.name
        self._log = log
        self._reread = reread
        self._clock = clock
        self._shares = config.shares.count
        self._ledger = Ledger(self._shares, config.keep_lost.total_seconds())
        self._encoder = ListEncoder(APIS[0])
        self.encoders = {APIS[0].name: self._encoder}
        """By API, those that know the list already, for it was measured with them."""
        self._taken: tuple[Device, ...] | None = None
        """What is offered now, if the driver says all of it."""
        self._on_file: Held = None
        self._looked = False
        self._in_flight: list[tuple[str, ...]] = []
        self._granted: dict[str, float] = {}
        self._holding: set[str] = set()
        self._kubelet_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # what the driver says

    def take(self, devices: Iterable[Device]) -> None:
        """The driver's whole list."""
        devices = tuple(devices)
        if self._is_no_news(devices):
            return
        fits, current = self._fits(devices), self.inventory.current
        if not fits and current is None:
            return
        only = None if fits or current is None else current.offers.keys()
        self._ledger.take(devices, self._clock.monotonic(), only)
        self._taken = devices if fits else None
        self._publish(self._ledger.offers())

    def _is_no_news(self, devices: tuple[Device, ...]) -> bool:
        """Whether these are the very devices that are offered already: most drivers keep what doesn't change."""
        taken = self._taken
        return taken is not None and len(devices) == len(taken) and all(map(operator.is_, devices, taken))

    def fail(self, reason: str, *, offer: bool) -> None:
        """The driver doesn't say what there is.

        ``offer``: even if it never has, for the kubelet shouldn't wait longer.
        """
        self._taken = None
        self._ledger.fail(reason, self._clock.monotonic())
        if offer or self.inventory.current is not None:
            self._publish(self._ledger.offers())

    def _fits(self, devices: Sequence[Device]) -> bool:
        failure = _too_long(devices, self._shares, self._ledger, self._encoder)
        self._mark(failure)
        return failure is None

    def _mark(self, failure: str | None) -> None:
        if failure and not self.failure:
            self._log.error("the resource failed: %s", failure)
        if self.failure and not failure:
            self._log.info("the resource recovered")
        self.failure = failure

    def _publish(self, offers: Mapping[str, Offer]) -> None:
        self.inventory.publish(offers)
        self._schedule()

    # what the kubelet holds

    def hold(self, held: Held, written: float, near: Mapping[str, tuple[int, ...]] = NOWHERE) -> None:
        """What the kubelet's checkpoint says of this resource; None: it can't be read.

        ``written``: seconds, as time(). ``near``: the NUMA nodes of each id, as the kubelet knew them.
        """
        now = self._clock.time()
        self._on_file, self._looked = held, True
        if held is not None:
            self.known.set()
        for id_, granted in list(self._granted.items()):
            newer = written >= granted - _CLOCK_STEP
            if held is not None and newer and (id_ in held or now - granted > SETTLED):
                del self._granted[id_]
        changed = self._ledger.hold(self._held(), self._clock.monotonic(), near)
        if written >= self._kubelet_since:
            self._tell_released()
        if changed and self.inventory.current is not None:
            self._publish(self._ledger.offers())
        else:
            self._schedule()

    def checkpoint_missing(self) -> None:
        """There is no checkpoint.

        Nothing was ever allocated, or the file was deleted; then what it said last stays true, and if that couldn't
        be read, it stays unknown until a kubelet writes the file anew.
        """
        self.hold(self._on_file if self._looked else frozenset(), 0.0)

    def new_kubelet(self, since: float) -> None:
        """Another kubelet, that began ``since`` (seconds, as time()), may have forgotten what containers hold: what it
        doesn't hold hasn't been released by it, whatever an older checkpoint says.
        """
        self._holding, self._kubelet_since = set(), since

    def _held(self) -> Held:
        if self._on_file is None:
            return None
        return self._on_file.union(self._granted, *self._in_flight)

    def _tell_released(self) -> None:
        held = self._held()
        if held is None:
            return
        holding = self._devices_of(held)
        free = [self._ledger.devices[id_] for id_ in self._holding - holding if id_ in self._ledger.devices]
        self._holding = holding
        if free:
            self.released(free)

    def _devices_of(self, held: Iterable[str]) -> set[str]:
        return {device.id for id_ in held if (device := self._ledger.device(id_))}

    def unheld(self, devices: Iterable[Device]) -> list[Device]:
        """Those of ``devices`` of which no container holds a share, nor may be getting one."""
        held = self._held()
        if held is None:
            return []
        holding = self._devices_of(held)
        return [device for device in devices if device.id not in holding]

    def still_free(self, devices: Iterable[Device]) -> list[Device]:
        """Those of ``devices``, none of which was held, that no container has got since, nor may be getting."""
        holding = self._holding | self._devices_of(id_ for ids in self._in_flight for id_ in ids)
        return [device for device in devices if device.id not in holding]

    @contextmanager
    def allocating(self, ids: Iterable[str]) -> Iterator[None]:
        """While an Allocate of ``ids`` is in flight, and until the checkpoint tells what came of it, they are held."""
        ids = tuple(ids)
        self._in_flight.append(ids)
        given = False
        try:
            yield
            given = True
        finally:
            self._in_flight.remove(ids)
            if given:
                self._granted.update(dict.fromkeys(ids, self._clock.time()))
                self._holding |= self._devices_of(ids)
            else:  # a checkpoint that was read meanwhile took them for held
                self._holding -= self._devices_of(ids) - self._devices_of(self._held() or ids)
            self._schedule()

    def _schedule(self) -> None:
        """One timer for the next id that may be dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ledger.lost:
            return
        drop = self._ledger.next_drop(self._held())
        delays = [max(0.0, drop - self._clock.monotonic())] if drop is not None else []
        if self._on_file is not None and any(id_ in self._granted for id_ in self._ledger.lost if self._is_lost(id_)):
            delays.append(SETTLED)
        if delays:
            self._timer = asyncio.get_running_loop().call_later(min(delays) + 0.001, self._reread)

    def _is_lost(self, offered: str) -> bool:
        return self._ledger.device(offered) is None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # what an id means

    def resolve(self, ids: Iterable[str]) -> dict[str, Device] | Refusal:
        """The device of each id, all present and Healthy; or why the first one that isn't can't be had."""
        return self._ledger.resolve(tuple(ids), self._clock.monotonic())

    def device(self, offered: str) -> Device | None:
        """The device of an offered id while it is present, healthy or not."""
        return self._ledger.device(offered)

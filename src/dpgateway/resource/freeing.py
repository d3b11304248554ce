"""Releases free devices to one resource's driver: those that no container holds or is being given.

Theory of operation. The front decides which ids are freed. A freed id is released once its device is listed and its
hardware isn't in use under another name. The call may queue in the driver's lane, so just before it the device is
checked once more; after the call the front hears that the id is released. Until then, and over restarts of the gateway,
the id stays freed: a release is delivered at least once. The exceptions:

    another gateway serves the resource   that gateway releases to its own driver (rest, go_on)
    the driver ended                      the next driver gets all releases again
    the device isn't listed               it is released when it is listed again within ``keep_lost``, or never, which
                                          the log calls a leak; an id is released at once if a driver without release
                                          gave it, or the present one has neither prepare nor release
    another driver granted it             it is never released: a leak, too
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from dpgateway.config.values import ResourceConfig
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.preparing import Free
from dpgateway.drivers.running import RunningDriver
from dpgateway.kit.observable import Observable
from dpgateway.model import Device, hardware
from dpgateway.resource.front import Behind
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.orphans import leak

CONCERNED = frozenset({"prepare", "release"})
"""The abilities of a driver that releases concern: one with ``prepare`` may still be preparing."""


class Releases:
    """The releases of one resource. Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        inventory: Inventory,
        driver: RunningDriver,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``config``: a new ``keep_lost`` takes effect at once."""
        self._config, self._inventory, self._driver, self._log = config, inventory, driver, log
        self._ledger, self._usage, self._exclusion = inventory.ledger, inventory.usage, inventory.exclusion
        self._releasing: set[str] = set()
        """The freed ids whose release is queued or running."""
        self._leaked: set[str] = set()
        """The freed ids logged as leaks."""
        self._absent: dict[str, float] = {}
        """`_absent` contains the start of the absence of each device that is waited for, keyed by freed id."""
        self._given_up: asyncio.TimerHandle | None = None
        """Looks again when the next of these is no longer waited for."""
        self._configured = False
        """Whether a new configuration is looked at: once there was an absent device."""
        self._held_up = False
        """Whether a release waits until other uses of the hardware are known, or over."""
        self._released_through: Lanes | None = None
        """The driver's lanes at the last release; another value means another driver."""
        self.resting = False
        """Whether another gateway serves the resource and releases to its own driver."""
        self._exclusion.subscribe(self._uses_changed)

    def rest(self) -> None:
        """Another gateway serves the resource from now on, or may; or nobody does."""
        self.resting = True
        if self._given_up is not None:
            self._given_up.cancel()

    def go_on(self) -> None:
        """This gateway serves it from now on."""
        self.resting = False
        self.release_due()

    def release_due(self) -> None:
        """Releases the ids that are freed and due."""
        # Ids that were in use before their device was listed get its hardware, which counts in the decisions below.
        # Ids from before the boot get it, too: its names may be others since.
        value = self._usage.value
        unknown = (id_ for id_, entry in value.unreleased.items() if not entry.hardware or id_ in value.before_boot)
        found = {id_: device for id_ in unknown if (device := self._ledger.device(id_)) is not None}
        behind = {id_: names for id_, device in found.items() if (names := hardware(device))}
        self._usage.set(self._usage.value.known_behind(behind, {id_: device.id for id_, device in found.items()}))

        lanes, freed = self._driver.lanes, self._usage.value.freed
        if lanes is not self._released_through:  # the ended driver may have dropped its releases
            self._releasing.clear()
        self._released_through = lanes
        self._absent = {id_: since for id_, since in self._absent.items() if id_ in freed}
        freed -= self._releasing
        if self.resting or lanes is None or self._driver.state.value.devices is None or not freed:
            return
        self._held_up = bool(self._exclusion.unsure)
        if self._held_up:  # the hardware may be in use in another resource of the pool
            return

        due = self._due(freed, concerned=not CONCERNED.isdisjoint(lanes.abilities))
        if not due:
            return
        self._releasing |= due.keys()
        # A release waits for all of its devices, and keeps those that it has. So a device whose call may hang is
        # released apart, or its prepare would block the containers of the others.
        busy, parts = lanes.busy, dict[str | None, set[str]]()
        for id_ in due:
            parts.setdefault(next(iter(self._inventory.devices_of([id_]) & busy), None), set()).add(id_)
        for name, ids in parts.items():
            devices = {device.id: device for id_ in sorted(ids) if (device := due[id_]) is not None}
            free: Free = self.still_free
            if name is not None and not devices:  # the driver isn't told, but still works on it
                devices, free = {name: Device(name)}, lambda _: []
            lanes.release([*devices.values()], free, partial(self._released, ids))

    def _uses_changed(self) -> None:
        if self._held_up:  # seldom; the pool isn't told of a release while it tells its members
            self._held_up = False
            asyncio.get_running_loop().call_soon(self.release_due)

    def _due(self, freed: Collection[str], *, concerned: bool) -> dict[str, Device | None]:
        """The freed ids that are released now, each with the device to pass to the driver.

        A device with another id in use isn't passed; its freed id is released all the same.
        """
        holdings, keep, now = self._usage.value, self._ledger.keep_lost, self._inventory.clock.monotonic()
        used, flying = self._inventory.devices_of(holdings.last_known), self._flying()
        due: dict[str, Device | None] = {}
        before, self._absent = self._absent, {}
        for id_ in sorted(freed):
            driver = holdings.unreleased[id_].driver
            foreign = driver not in (None, "", holdings.driver)
            device = None if foreign else self._inventory.given(id_)
            if device is None:
                # Neither a restart nor another front's debt tells for how long it has been gone.
                lost = self._ledger.lost.get(id_)
                since = before.get(id_, now if lost is None else lost.since)
                left = 0.0 if foreign else since + keep - now
                self._log_leak(id_, left, foreign=foreign)
                if left <= 0 or not concerned or driver == "":
                    due[id_] = None
                else:
                    self._absent[id_] = since
            # a device in an Allocate under way waits: if that fails, it is freed again
            elif device.id not in flying:
                if self._exclusion.worked_on(device):
                    self._held_up = True
                else:
                    due[id_] = None if device.id in used else device

        if self._given_up is not None:
            self._given_up.cancel()
        if self._absent:
            delay = min(self._absent.values()) + keep - now + 0.001
            self._given_up = asyncio.get_running_loop().call_later(delay, self.release_due)
            if not self._configured:
                self._configured = True
                self._config.subscribe(self.release_due)
        return due

    def _log_leak(self, id_: str, seconds: float, *, foreign: bool) -> None:
        """Logs, once per id, that a release is missing, perhaps for ever, and so is what the driver would undo."""
        holdings = self._usage.value
        entry, driver = holdings.unreleased[id_], holdings.driver
        if id_ in self._leaked or entry.driver == "" or (entry.driver is None and not driver):
            return
        self._leaked.add(id_)
        why = f"it doesn't list it any more{f', or not within the next {seconds:.0f} s' if seconds > 0 else ''}"
        if foreign:
            why = f"the resource has driver {driver} now" if driver else "the resource's driver has no release() now"
        leak(self._log, self._inventory.name, holdings, id_, why)

    def _released(self, ids: set[str]) -> None:
        """Ends a release. Ids with a device in an Allocate under way may have been left out: they stay freed."""
        self._releasing -= ids
        self._leaked -= ids
        flying = self._flying()
        done = {id_ for id_ in ids if (device := self._inventory.given(id_)) is None or device.id not in flying}
        if done:
            self._usage.set(self._usage.value.released(done))

    def _flying(self) -> set[str]:
        """The devices of Allocates under way, and of those that the driver works on without them."""
        flights = (*self._usage.value.in_flight, *self._usage.value.abandoned)
        return self._inventory.devices_of(id_ for flight in flights for id_ in flight)

    def owe(self, ids: tuple[str, ...], hardware: Behind, found: Mapping[str, Device], driver: str | None) -> None:
        """This driver gave these devices: unless the grant succeeds, they are released. ``found``: by id."""
        names = {id_: device.id for id_, device in found.items()}
        self._usage.set(self._usage.value.owed(ids, hardware, names, driver))

    def abandoned(
        self,
        hardware: Behind,
        found: Mapping[str, Device],
        owe: Callable[[], None] | None,
        call: asyncio.Future[Any],
    ) -> None:
        """The grant ends, but the driver works on: its ``call`` of allocate() goes on, perhaps until after the driver's
        end. ``owe``: see :meth:`owe`; None if the driver isn't concerned.
        """
        flight = dict(hardware)
        self._usage.set(self._usage.value.abandons(flight))

        def returned(_: object) -> None:
            self._usage.set(self._usage.value.returned(flight))
            if call.exception() is None:
                if owe is not None:
                    owe()
                self._log_late(found)
            self._exclusion.uses_changed()
            self.release_due()

        call.add_done_callback(returned)

    def _log_late(self, found: Mapping[str, Device]) -> None:
        """Logs the answer to an abandoned allocate(); another call may have granted the devices meanwhile."""
        devices = {device.id: device for device in found.values()}
        names = list(devices)
        free = len(self.still_free([*devices.values()])) if self._usage.value.known else 0
        text = "allocate() of %s answered after its deadline; %d are free again"
        self._log.info(text, ", ".join(names), free, extra={"method": "allocate", "devices": names, "count": free})

    def still_free(self, devices: Sequence[Device]) -> list[Device]:
        """The devices among ``devices``, all free before, that no container has got since or is being given, under any
        name, and that no abandoned allocate() works on.
        """
        held = self._inventory.devices_of(self._usage.value.last_known) | self._flying()
        conflicts = self._exclusion.conflicts(devices, freeing=True)
        return [device for device in devices if device.id not in held and device.id not in conflicts]

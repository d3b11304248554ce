"""Tells one resource's driver which devices are free again: that no container holds them, or is getting them.

Theory of operation. A freed id (the front says which) is told of once its device is listed, and nobody has its
hardware under another name. The driver's lane may take its time, so whether the device is *still* free is asked again
just before the call; once the driver was told, the front hears that the id is released. In between, and if the gateway
ends, the id stays freed: a driver is told at least once. These exceptions hold:

    another gateway serves the resource   it tells its own driver (rest, go_on)
    the driver ended                      the next one is told everything again
    the device isn't listed               it is told when it is listed again, or never: the log calls that a leak. An
                                          id of a driver without prepare and release waits for nothing
    another driver gave it away           nobody is told: a leak, too
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.model import Device
from dpgateway.resource.front import Behind
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.orphans import leak
from dpgateway.resource.use import hardware

CONCERNED = frozenset({"prepare", "release"})
"""To a driver with one of these abilities it matters what becomes free: one that prepares may still be doing so."""


class Releases:
    """Used from the event loop."""

    def __init__(self, inventory: Inventory, driver: RunningDriver, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._inventory, self._driver, self._log = inventory, driver, log
        self._ledger, self._usage = inventory.ledger, inventory.usage
        self._telling: set[str] = set()
        """The freed ids of which the driver is being told."""
        self._leaked: set[str] = set()
        """The freed ids that the log has called leaks."""
        self._told_through: Lanes | None = None
        self._resting = False
        """Whether another gateway tells its own driver what is free."""

    def rest(self) -> None:
        """From now on another gateway tells its own driver what is free."""
        self._resting = True

    def go_on(self) -> None:
        """This gateway does so."""
        self._resting = False

    def tell(self) -> None:
        """Tells the driver what is free by now."""
        self._note_hardware()
        calls, freed = self._driver.calls, self._usage.value.freed
        if calls is not self._told_through:  # a driver that ended may never have been told
            self._telling.clear()
        self._told_through = calls
        freed -= self._telling
        if self._resting or calls is None or self._driver.state.value.devices is None or not freed:
            return
        if self._inventory.unsure:
            return
        ids, devices = self._due(freed, concerned=not CONCERNED.isdisjoint(calls.abilities))
        if ids:
            self._telling |= ids
            elsewhere = self._inventory.elsewhere(devices, freeing=True)
            calls.release([d for d in devices if d.id not in elsewhere], self.still_free, lambda: self._told(ids))

    def _due(self, freed: Collection[str], *, concerned: bool) -> tuple[set[str], Collection[Device]]:
        """The freed ids of which the driver is to be told now, and the devices that it is told of."""
        holdings, now = self._usage.value, self._inventory.clock.monotonic()
        used, flying = self._inventory.devices_of(holdings.last_known), self._flying()
        devices: dict[str, Device] = {}
        ids = set()
        for id_ in sorted(freed):
            foreign = holdings.unreleased[id_].driver not in (None, "", holdings.driver)
            device = None if foreign else self._inventory.given(id_)
            if device is None:
                self._tell_of_leak(id_, foreign=foreign)
                if foreign or not concerned or self._ledger.back_until(id_) <= now:
                    ids.add(id_)
            # what is being given away just now is free, untold, if that fails
            elif device.id not in flying and not self._inventory.worked_on(device):
                ids.add(id_)
                if device.id not in used:
                    devices[device.id] = device
        return ids, devices.values()

    def _tell_of_leak(self, id_: str, *, foreign: bool) -> None:
        """The driver isn't told, perhaps for ever, so what it does when a device is free isn't done."""
        holdings = self._usage.value
        entry, driver = holdings.unreleased[id_], holdings.driver
        if id_ in self._leaked or entry.driver == "" or (entry.driver is None and not driver):
            return
        self._leaked.add(id_)
        seconds = self._ledger.back_until(id_) - self._inventory.clock.monotonic()
        why = f"it doesn't list it any more{f', or not within the next {seconds:.0f} s' if seconds > 0 else ''}"
        if foreign:
            why = f"the resource has driver {driver} now" if driver else "the resource's driver has no release() now"
        leak(self._log, self._inventory.name, holdings, id_, why)

    def _note_hardware(self) -> None:
        """Of ids that were in use before somebody could say what is behind them."""
        unknown = (id_ for id_, entry in self._usage.value.unreleased.items() if not entry.hardware)
        found = {id_: device for id_ in unknown if (device := self._ledger.device(id_)) is not None}
        behind = {id_: names for id_, device in found.items() if (names := hardware(device))}
        self._usage.known_behind(behind, {id_: device.id for id_, device in found.items()})

    def _told(self, ids: set[str]) -> None:
        """What is being given away just now was left out, perhaps; it is told again, unless a container gets it."""
        self._telling -= ids
        self._leaked -= ids
        flying = self._flying()
        done = {id_ for id_ in ids if (device := self._inventory.given(id_)) is None or device.id not in flying}
        if done:
            self._usage.released(done)

    def _flying(self) -> set[str]:
        """The devices of Allocates that are under way."""
        return self._inventory.devices_of(id_ for flight in self._usage.value.in_flight for id_ in flight)

    def owe(self, ids: tuple[str, ...], hardware: Behind, found: Mapping[str, Device]) -> None:
        """The driver gave these devices: unless a container gets them, it is told that they are free. ``found``: by
        id.
        """
        if (calls := self._driver.calls) is not None and not CONCERNED.isdisjoint(calls.abilities):
            self._usage.owed(ids, hardware, {id_: device.id for id_, device in found.items()})

    def allocated_late(self, ids: tuple[str, ...], hardware: Behind, found: Mapping[str, Device]) -> None:
        """Nobody got the devices by that call; another call may have given them away meanwhile."""
        self.owe(ids, hardware, found)
        devices = {device.id: device for device in found.values()}
        names = list(devices)
        free = len(self.still_free([*devices.values()])) if self._usage.value.known else 0
        text = "allocate() of %s answered after its deadline; %d are free again"
        self._log.info(text, ", ".join(names), free, extra={"method": "allocate", "devices": names, "count": free})
        self._inventory.use()
        self.tell()

    def still_free(self, devices: Sequence[Device]) -> list[Device]:
        """Those of ``devices``, all of them free before, that no container has got since or may be getting."""
        held = self._inventory.devices_of(self._usage.value.last_known)
        elsewhere = self._inventory.elsewhere(devices, freeing=True)
        return [device for device in devices if device.id not in held and device.id not in elsewhere]

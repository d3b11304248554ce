"""Follows a resource's driver: its list becomes the inventory's, and it is told what is free once it runs."""

from __future__ import annotations

from dpgateway.config import ResourceConfig
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.kit.observable import Observable, Signal
from dpgateway.model import Device
from dpgateway.resource.freeing import Releases
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.limit import ListLimit


class DriverWatch:
    """Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        driver: RunningDriver,
        inventory: Inventory,
        releases: Releases,
        limit: ListLimit,
    ) -> None:
        """``limit``: how long a list the front can publish."""
        self.restarted, self.changed = Signal(), Signal()
        """Another driver runs; it does, or other devices are listed."""
        self._config, self._driver, self._limit = config, driver, limit
        self._inventory, self._releases = inventory, releases
        self._taken: tuple[Device, ...] | None = None
        """The driver's list that the inventory took last."""
        self._calls: Lanes | None = None
        """The driver's calls at that time."""

    async def follow(self) -> None:
        """Never returns."""
        seen = 0
        while True:
            seen = await self._driver.state.wait(seen)
            self.look()

    def look(self) -> None:
        """At what the driver says, or at its last list once more, because its shares are others."""
        state, calls = self._driver.state.value, self._driver.calls
        restarted, self._calls = calls is not self._calls, calls
        if restarted and calls is not None:
            released_by = self._config.value.driver if "release" in calls.abilities else ""
            self._inventory.usage.given_by(released_by)

        # A driver that fails and had listed before is taken at that list, all of it Unhealthy.
        others = False
        if state.devices is not None and (state.devices is not self._taken or not state.failure):
            self._taken = state.devices
            others = self._inventory.take(state.devices, self._limit)
            if others or restarted or self._inventory.usage.value.unsettled:
                self._releases.tell()
        if state.failure:
            deaf = calls is None or state.devices is None
            self._inventory.fail(state.failure, overdue=state.overdue, deaf=deaf)

        if others or restarted:
            self.changed.notify()
        if restarted:
            self.restarted.notify()

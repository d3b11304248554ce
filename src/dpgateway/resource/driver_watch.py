"""Follows a resource's driver: takes its list into the inventory, and releases free devices to it once it runs."""

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
    """Follows one driver. Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        driver: RunningDriver,
        inventory: Inventory,
        releases: Releases,
        limit: ListLimit,
    ) -> None:
        """``limit``: of the front's list."""
        self.restarted, self.changed = Signal(), Signal()
        """``restarted``: another driver runs, or none. ``changed``: that, or held ids may have other devices."""
        self._config, self._driver, self._limit = config, driver, limit
        self._inventory, self._releases = inventory, releases
        self._taken: tuple[Device, ...] | None = None
        """The last list that the inventory took."""
        self._calls: Lanes | None = None
        """The driver's calls at the last look; another value means another driver."""

    async def follow(self) -> None:
        """Never returns."""
        seen = 0
        while True:
            seen = await self._driver.state.wait(seen)
            self.look()

    def look(self) -> None:
        """Takes the driver's present state; also its last list again, after ``shares`` changed."""
        state, calls = self._driver.state.value, self._driver.calls
        # Grants record the driver to release to: from now on the new one.
        restarted, self._calls = calls is not self._calls, calls
        if restarted and calls is not None:
            released_by = self._config.value.driver if "release" in calls.abilities else ""
            usage = self._inventory.usage
            usage.set(usage.value.given_by(released_by))

        # A failed driver's list is taken once, for the ids; fail() then makes all of it Unhealthy.
        others = False
        if state.devices is not None and (state.devices is not self._taken or not state.failure):
            self._taken = state.devices
            others = self._inventory.take(state.devices, self._limit)
            # A device that changed may be due for its release now; so is everything with another driver.
            if others or restarted or self._inventory.usage.value.unsettled:
                self._releases.tell()
        if state.failure:
            deaf = calls is None or state.devices is None
            self._inventory.fail(state.failure, overdue=state.overdue, deaf=deaf)

        if others or restarted:
            self.changed.notify()
        if restarted:
            self.restarted.notify()

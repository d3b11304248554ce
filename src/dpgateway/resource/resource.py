"""One extended resource, whichever front offers it: makes its parts, connects them, and runs them.

The life of a resource, with its front's part::

    made        in its pool, and following its driver; grants nothing, because another gateway may serve it
    the front takes the resource's lock (ownership)
    begin       reads the journals of earlier gateways, and waits for the holdings; then it is served
    the front lists it to its kubelet, and grants (granting)
    stop        the list is frozen
    close       the journal is written for the last time

``failure`` combines the reasons why there is nothing to grant: the resource can't be served (``trouble``), its driver
fails, or its list doesn't fit. The log repeats it while it lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpgateway.config import ResourceConfig
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.kit.complaint import Reminder
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.threads import Threads
from dpgateway.model import Device
from dpgateway.resource.freeing import Releases
from dpgateway.resource.front import Usage
from dpgateway.resource.granting import Granting
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.journal import Journal, JournalWriter
from dpgateway.resource.limit import ListLimit
from dpgateway.resource.list_log import ListLog
from dpgateway.resource.ownership import LockState, Ownership
from dpgateway.resource.pools import Pools

KNOWN_WITHIN = 1.0
"""The most seconds that serving a resource waits for its holdings."""


async def _stays(_config: ResourceConfig) -> None:
    """No resource changes its front by itself."""


class ServedByName:
    """The resources that are served here, on whichever front. Used from the event loop."""

    def __init__(self) -> None:
        self._by_name: dict[str, Resource] = {}
        self.begun = Signal()
        """Notified when a resource is served."""

    def add(self, resource: Resource) -> None:
        self._by_name[resource.name] = resource
        self.begun.notify()

    def remove(self, resource: Resource) -> None:
        """It is no longer served; another one of its name may be."""
        if self._by_name.get(resource.name) is resource:
            del self._by_name[resource.name]

    def granting(self, name: str) -> Granting | None:
        """None while the resource isn't served."""
        resource = self._by_name.get(name)
        return None if resource is None else resource.granting

    def allocating(self) -> bool:
        """Whether a kubelet's Allocate is in flight."""
        return any(one.inventory.usage.allocating for one in self._by_name.values())

    async def record(self, name: str) -> bool:
        """Writes the last changes of the resource's journal. Returns whether the disk has them."""
        resource = self._by_name.get(name)
        return resource is not None and await resource.journal.record()


@dataclass(frozen=True)
class Common:
    """The parts that all resources of a front share."""

    directory: Path
    """The kubelet's device-plugins directory, where the locks are."""
    state_dir: Path
    threads: Threads
    pools: Pools
    limit: ListLimit
    """The limit of the front's list."""
    front: str = ""
    """The front's name, for its journals; empty: that of the first gateways."""
    served: ServedByName = field(default_factory=ServedByName)
    """The resources of all fronts."""
    confirm_front: Callable[[ResourceConfig], Awaitable[None]] = _stays
    """Called with a resource, once its lock is taken. Raises OnOtherFront, KubeletError, OSError."""


class Resource:
    """One extended resource. Used from the event loop."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        driver: RunningDriver,
        usage: Usage,
        common: Common,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``config`` changes in place (config/changes.py). ``usage``: the holdings, kept by the front."""
        self.name = name = config.value.name
        self.driver = driver
        self.served = False
        self.trouble = Observable("")
        """Why the resource can't be served; empty if it can."""
        self.inventory = Inventory(config, usage, log)
        self.releases = Releases(config, self.inventory, driver, log)
        self.releases.rest()  # until begin(): another gateway may serve the resource
        self.granting = Granting(config, self.inventory, driver, self.releases, log)
        self.restarted, self.changed = Signal(), Signal()
        """``restarted``: another driver runs, or none. ``changed``: that, or held ids may have other devices."""
        self._limit = common.limit
        self._last_taken: tuple[Device, ...] | None = None
        """The last list that the inventory took."""
        self._lanes: Lanes | None = None
        """The driver's lanes at the last look; another value means another driver."""
        self.ownership = Ownership(common.directory, name, log)
        self.elsewhere = self.ownership.other
        """A sentence about the other gateway that serves it, and the expected takeover; empty if none does."""
        journal = Journal(common.state_dir, common.directory, name, common.front)
        self.journal = JournalWriter(journal, usage, common.threads, log)
        self.journal.lanes, self.ownership.writing = common.pools.journals.lanes, self.journal.under_way
        self.ownership.calls = self._calls_after_close
        self.ownership.late = common.pools.elsewhere.late
        self._config, self._known = config, config.value
        self._log, self._pools, self._served = log, common.pools, common.served
        self._confirm_front = common.confirm_front
        self.begun = asyncio.Event()
        """Set once :meth:`begin` has returned."""
        self.list_log = ListLog(
            self.inventory.list, log, lambda: bool(driver.state.value.failure), holders=lambda: usage.value.named
        )
        text = "the resource has failed for %.0f min: %s"
        self._reminder = Reminder(
            lambda why, seconds: log.warning(text, seconds / 60, why, extra={"seconds": seconds, "reason": why})
        )

        # In its pool before anything can be granted.
        self._pools.join(self.inventory.exclusion)
        self.ownership.join(config.value.pool or "", self._pools.elsewhere.after(name))
        self.elsewhere.subscribe(self._owner_changed)
        for value in (driver.state, self.inventory.rejected, self.trouble):
            value.subscribe(lambda: self._reminder.set(self.failure))
        config.subscribe(self._configured)

    async def run(self) -> None:
        """Follows the driver, writes the journal and logs changes of the list; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_driver(), name=f"{self.name} list")
            group.create_task(self.journal.follow(), name=f"{self.name} journal")
            await self.begun.wait()  # before, all is Unhealthy because another gateway serves it: no news
            await self.list_log.follow()

    async def _follow_driver(self) -> None:
        seen = 0
        while True:
            seen = await self.driver.state.wait(seen)
            self._look()

    def _look(self) -> None:
        """Takes the driver's present state; also its last list again, after ``shares`` changed."""
        state, lanes, usage = self.driver.state.value, self.driver.lanes, self.inventory.usage
        # Grants record the driver to release to: from now on the new one.
        restarted, self._lanes = lanes is not self._lanes, lanes
        if restarted and lanes is not None:
            usage.set(usage.value.given_by(self._known.driver if "release" in lanes.abilities else ""))

        # A failed driver's list is taken once, for the ids; fail() then makes all of it Unhealthy.
        others = False
        if state.devices is not None and (state.devices is not self._last_taken or not state.failure):
            self._last_taken = state.devices
            others = self.inventory.take(state.devices, self._limit)
            # A device that changed may be due for its release now; so is everything with another driver.
            if others or restarted or usage.value.unsettled:
                self.releases.release_due()
        if state.failure:
            deaf = lanes is None or state.devices is None
            self.inventory.fail(state.failure, overdue=state.overdue, deaf=deaf)

        if others or restarted:
            self.changed.notify()
        if restarted:
            self.restarted.notify()

    async def begin(self, *, took_over: bool) -> None:
        """Returns once the resource can be granted. The front has taken its lock; ``took_over``: by a handover, from a
        gateway that named its resources; then releases and journal go on when the front says so. Raises KubeletError,
        OSError; OnOtherFront, so that it begins again there.
        """
        await self._confirm_front(self._known)
        # The journals have all grants of another gateway, perhaps under other names, once that has ended.
        if self.ownership.waited and not took_over:
            await self._pools.others_ended()
        self.ownership.caught_up()
        await self._pools.look_at_left()
        await self.journal.load(rests=self.ownership.state is LockState.BORROWED)
        # The uses of this resource are known from here on, so it no longer blocks its pool as another gateway's.
        self._pools.elsewhere.drop(self.name)
        self.served = True
        self.trouble.set("")

        # A first list without a held id may crash the kubelet, and one that is Unhealthy because the pool's uses are
        # still unknown costs the pods that arrive just then.
        await self.inventory.list.wait(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_WITHIN):
                await self.inventory.usage.wait_for(lambda in_use: in_use.known)
                await self._pools.known(self.name)

        # The first list of a kubelet must have the held ids, and should have the exclusions.
        self.inventory.hold()
        self.inventory.list.flush()
        # A gateway that handed it over may take it back, and give away what is free here, until the handover is over.
        if took_over:
            self.releases.rest()
        else:
            self.releases.go_on()
        self._served.add(self)
        self.begun.set()
        if not self.inventory.ledger.devices and not self.driver.state.value.failure:
            text = "there are no devices yet: driver %s finds none for the options at %s"
            self._log.warning(text, self._known.driver, self._known.where)

    async def warm(self) -> bool:
        """Waits until the resource could be served at once. Returns whether it has a healthy device."""
        self.trouble.set("")  # an earlier attempt's: this one has found the lock, which another gateway has
        await self.inventory.list.wait(0)
        await self.driver.state.wait_for(lambda _: not self.failure)
        await self.inventory.usage.wait_for(lambda in_use: in_use.known)
        return self.driver.healthy

    def cannot(self, error: Exception) -> None:
        """The resource can't be served now, but perhaps later: the directory is full, or belongs to another user."""
        level = logging.DEBUG if str(error) == self.trouble.value else logging.ERROR
        self.trouble.set(str(error))
        self._log.log(level, "the resource can't be served: %s", error, extra={"reason": str(error)})

    def went(self, why: str) -> None:
        """Another gateway may grant it from now on; ``why`` names that gateway."""
        self._pools.elsewhere.add(self.name, why)

    def stop(self) -> None:
        """Freezes the list, and stops repeating failures in the log."""
        self._served.remove(self)
        self._reminder.close()
        self.inventory.list.close()

    def _calls_after_close(self) -> Collection[asyncio.Future[Any]]:
        """What the driver still does after its end, with devices that another gateway would give away."""
        return [one.ended for one in self._pools.after_close.value if one.resource == self.name]

    async def close(self) -> None:
        """Writes the last grants to the journal. If the disk hangs, the lock stays until it has written them."""
        self.releases.rest()  # a timer of theirs would keep all of the resource
        if self.served:
            await self.journal.finish()

    # health

    @property
    def failure(self) -> str:
        """Why a kubelet has nothing to give to a container; empty if it may have."""
        return self.trouble.value or self.driver.state.value.failure or self.inventory.rejected.value

    @property
    def failed_since(self) -> float | None:
        """When the present failure began, in seconds of the monotonic clock; None without one."""
        return self._reminder.since

    @property
    def unsaved(self) -> str:
        """Why the last grants aren't on disk; empty if they are."""
        return self.journal.complaint

    # changes

    def _configured(self) -> None:
        """Acts on a new pool or other ``shares``; all other values are read at each use."""
        before, self._known = self._known, self._config.value
        if before.pool != self._known.pool:
            self.ownership.join(self._known.pool or "", self._pools.elsewhere.after(self.name))
        if before.shares != self._known.shares:
            self._look()

    def _owner_changed(self) -> None:
        """Keeps ``elsewhere`` up to date; begin() drops the resource there, once the journal has been read."""
        if text := self.elsewhere.value:
            self._pools.elsewhere.add(self.name, text)
        elif self.served:
            self._pools.elsewhere.drop(self.name)

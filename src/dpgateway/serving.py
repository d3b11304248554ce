"""One resource, and the task that serves it.

Theory of operation. The task runs a driver and, above it, a plugin on the front that the resource has now. Both end
together, and the task begins again: when another gateway takes the resource over, it waits for that gateway's end; when
the resource has another front by now, it begins there. It ends only by cancellation.

A restarted resource has two of these for a while. The old one serves until the driver of the new one, its successor,
lists a Healthy device. Then the old task ends, and the new one takes its place and makes a plugin of its own. If the
front changes meanwhile, there are three: the old configuration goes on on the other front, and the new one follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

from dpgateway.config import IN_PLACE, ResourceConfig
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import OnOtherFront
from dpgateway.fronts import NodeFronts
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import uncancelled
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from dpgateway.resource.fronted import OnFront
from dpgateway.resource.held import HeldDevices
from dpgateway.resource.ownership import Ownership
from dpgateway.status.overview import Served

GRACE = 1.0
"""Timeout in seconds of Allocates in flight when their resource stops."""

_log = bind(__name__)


@dataclass(frozen=True)
class NodeParts:
    """What all resources of a node share."""

    name: str
    """The node's name."""
    node: Node
    fronts: NodeFronts
    changed: Signal
    """Notified when the status may have changed."""
    lingers: Callable[[], bool]
    """Whether the gateway serves on only until another one has taken over."""


@dataclass(eq=False)
class ServedResource(Served):
    """A resource while it is served. Used from the event loop."""

    parts: NodeParts = field(kw_only=True)
    placed: Callable[[ServedResource], None] = field(kw_only=True)
    """Called when it replaces its predecessor."""
    old: ServedResource | None = None
    """The predecessor, which serves the resource until this one does."""
    next: ServedResource | None = None
    """The successor, which waits for its driver to list devices."""
    task: asyncio.Task[None] = field(init=False)
    """Runs :meth:`run`."""
    ours: bool = False
    """Whether this gateway serves it, or resumes in a moment, and no other gateway has taken it over."""
    follows: bool = True
    """Whether it may take the resource over from a serving gateway. After a handover it only waits for the successor's
    end: else the two would take the resource from each other for ever.
    """
    driver: RunningDriver | None = None
    """The driver; None until it is made."""
    succeeded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has replaced its predecessor."""
    kept: Ownership | None = None
    """The lock of its last plugin, or of its predecessor's, for its next one."""
    continues: bool = False
    """Whether it continues an old configuration on another front: its successor waits for its first list."""

    # its state

    @property
    def latest(self) -> ResourceConfig:
        """The newest configuration, which may wait for its driver."""
        return self.chain[-1].config.value

    @property
    def chain(self) -> tuple[ServedResource, ...]:
        """The resource and its successors, in order."""
        return (self,) if self.next is None else (self, *self.next.chain)

    @property
    def is_ours(self) -> bool:
        return self.ours or (self.plugin is not None and self.plugin.resource.served)

    @property
    def has_devices(self) -> bool:
        """Whether the kubelet gets Healthy devices from it."""
        plugin = self.plugin
        if plugin is None or self.task.cancelling():
            return False
        return plugin.resource.served and not plugin.resource.failure and plugin.resource.driver.healthy

    @property
    def begins(self) -> bool:
        """Whether its first list on this front is still due, after one on another front."""
        plugin = self.plugin
        if not self.continues or plugin is None or not plugin.resource.served:
            return self.continues
        return plugin.resource.driver.state.value.devices is None

    @property
    def waits(self) -> bool:
        """Whether a successor on its own front waits for devices."""
        same = self.next is not None and self.next.config.value.on == self.config.value.on
        return same and self.has_devices and bool(self.pending)

    @property
    def pending(self) -> str:
        if self.next is None or (driver := self.next.driver) is None or driver.healthy:
            return ""
        said = driver.state.value
        nothing = "it hasn't listed its devices yet" if said.devices is None else "it lists no Healthy device"
        return f"the driver of its new configuration has none yet, so the old one serves on: {said.failure or nothing}"

    @property
    def streams(self) -> bool:
        """Whether a kubelet streams its list."""
        return self.plugin is not None and self.plugin.streaming

    @property
    def elsewhere(self) -> str:
        """Which other gateway serves it, and when this one takes over; empty if none does."""
        return "" if self.plugin is None else self.plugin.resource.elsewhere.value

    @property
    def present(self) -> str | None:
        """The front that offers it; None if another gateway has it, or it hasn't begun."""
        return self.config.value.on if self.is_ours else None

    def serves_on(self, front: str) -> bool:
        """Whether it is served on this front, and isn't about to be restarted."""
        if self.plugin is None or self.config.value.on != front or (self.next is not None and not self.waits):
            return False
        return self.plugin.resource.served and not self.task.cancelling()

    # its task

    async def run(self) -> None:
        """Serves until it is cancelled, and cleans up after that."""
        while True:
            try:
                await self._serve()
            except* _Over:
                pass
            if (task := asyncio.current_task()) is not None and task.cancelling():  # the group raised _Over instead
                if self.kept is not None and self.next is None:
                    self.kept.forgo()
                raise asyncio.CancelledError

    async def _serve(self) -> None:
        """Raises _Over, in a group, when another gateway has the resource, or it must begin again."""
        parts, fronts, before = self.parts, self.parts.fronts, self.config.value
        config = self.config = watched(fronts.chosen(before))  # drops the subscribers of the last run
        name = config.value.name
        if config.value.on != before.on and self.old is None:  # another gateway has moved it
            fronts.place(config.value)
        log = bind(_log, resource=name, driver=config.value.driver)
        async with asyncio.TaskGroup() as group:
            driver = self.driver = RunningDriver(config, parts.name, fronts.threads, log, fronts.after_close)
            held = HeldDevices(fronts.usage(config.value), config)
            driver.inform(held, partial(fronts.unfit, held.has))
            driving = group.create_task(driver.run(), name=f"{name} driver")
            if self.old is not None:
                await self._take_the_place(self.old, driver)
            # One that lingers takes nothing back from its successor, whatever a reload restarts meanwhile.
            follows = self.follows and not parts.lingers()
            plugin = self.plugin = fronts.plugin(config, driver, group, follows=follows)
            if self.kept is not None:
                self.kept.pass_on(plugin.resource.ownership)
                self.kept = None
            for value in plugin.values:
                value.subscribe(parts.changed.notify)
            plugin.standing.subscribe(self.note)
            self.note()
            parts.changed.notify()
            # The kubelet was seen before this plugin existed, so no event comes for it.
            if parts.node.kubelet:
                plugin.kubelet(Change.NEW)
            given = False
            try:
                try:
                    given = await plugin.run()
                    self.follows = self.follows and not given  # at once: it may be stopped while it drains
                except OnOtherFront:
                    self.keep()
            finally:
                await uncancelled(_leave(plugin, driving))  # also if it is stopped while it begins again
                given = given or plugin.resource.ownership.lent  # if run() was cancelled in the middle of a handover
                self.follows = self.follows and not given
                self.ours = (self.ours or plugin.resource.served) and not (given or plugin.taken_back)
            # Ends the group, and with it the driver.
            raise _Over

    async def _take_the_place(self, old: ServedResource, driver: RunningDriver) -> None:
        """Returns once the old one has ended: it serves while it offers devices and the new driver has none."""
        changed, fronts = self.parts.changed, self.parts.fronts
        driver.state.subscribe(changed.notify)
        if old.old is not None:
            await old.succeeded.wait()
        while (old.has_devices or old.begins) and not driver.healthy:
            # A resource that leaves its front offers nothing, and may block the devices that its successor has to list.
            before = old.config.value
            if before.on != self.config.value.on and not fronts.offers(before):
                break
            await changed.wait(changed.version)
        # Ownership carries over: another gateway may have taken the resource from the old one.
        self.ours, self.follows = old.is_ours, old.follows
        fronts.expect(self.config.value)
        kept = old.keep()
        try:
            await old.stop()
        except asyncio.CancelledError:
            if kept is not None:
                old.task.add_done_callback(lambda _: kept.forgo())
            raise
        self.kept = kept
        # The other gateway may also have taken it while the old task ended. If asked for it now, it would give it back.
        if self.follows and not old.follows:
            self.ours, self.follows = False, False
        fronts.place(self.config.value)  # the newest: a reload may have given it another pool meanwhile
        self.placed(self)
        old.next = self.old = None
        self.succeeded.set()

    def keep(self) -> Ownership | None:
        """Keeps the lock for its next plugin, or its successor's."""
        if self.kept is None and self.plugin is not None:
            self.kept = self.plugin.resource.ownership
            self.kept.keep()
        return self.kept

    async def stop(self) -> None:
        """Cancels the task and waits for its end; its outcome is ignored."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def stop_next(self) -> None:
        """Stops its successors."""
        for one in self.chain[1:]:
            await one.stop()
        self.next = None

    async def end(self) -> None:
        """Stops it and its successors together: else it would serve on while their drivers close, and an added resource
        may have the same hardware.
        """
        tasks = [one.task for one in self.chain]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.next = None
        if self.kept is not None:
            self.kept.forgo()


def watched(config: ResourceConfig) -> Observable[ResourceConfig]:
    """The resource's configuration, read at each use. Only keys of IN_PLACE notify: comparing options would run driver
    code.
    """
    return Observable(config, lambda new, old: any(getattr(new, key) != getattr(old, key) for key in IN_PLACE))


async def _leave(plugin: OnFront, driving: asyncio.Task[None]) -> None:
    """Drains and closes a plugin while its driver closes."""
    async with AsyncExitStack() as end:  # in reverse order
        end.push_async_callback(asyncio.wait, {driving})  # before the group cancels it again, as it closes
        end.push_async_callback(plugin.close)
        end.callback(driving.cancel)  # the driver closes while the server says goodbye
        end.push_async_callback(plugin.drain, GRACE)


class _Over(Exception):
    """Ends the task group of a resource that wasn't stopped."""

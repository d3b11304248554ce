"""The gateway: its resources, and the life of each, from the driver to the kubelet.

Theory of operation. Each resource has one task (:meth:`Gateway._serve`), which runs a driver and, above it, a plugin.
The task ends only by cancellation; when another gateway takes the resource over, it starts over and waits for that
gateway's end. A reload (:meth:`Gateway.apply`) does one of these to each resource:

- *same, amended*: its observable configuration gets the new value. Subscribers act on it; all others read it at each
  use.
- *added, removed*: the task is started, or cancelled and awaited.
- *restarted* (another driver, front, or options): a second task runs the new driver beside the old plugin. The old one
  serves until the new driver lists a Healthy device, because a list that hangs or is empty would take the kubelet's
  devices away. Then the old task ends, and the new one goes on with a plugin of its own (``old``, ``next``).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpgateway.config import Changes, Configuration, ResourceConfig, WebSettings, to_json, watched
from dpgateway.deviceplugin.fitness import unfit
from dpgateway.deviceplugin.server.sockets import left_behind
from dpgateway.deviceplugin.values import FRONT
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError, NoThread, OnOtherFront
from dpgateway.fronts import NodeFronts
from dpgateway.kit import memory
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import retry, uncancelled
from dpgateway.node.directory import Places
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from dpgateway.node.pods import other_of_us, say_ending
from dpgateway.node.runtime import SOCKETS
from dpgateway.resource.fronted import OnFront
from dpgateway.resource.held import HeldDevices
from dpgateway.resource.ownership import FOLDER, LAST
from dpgateway.status.figures import ClusterFigures
from dpgateway.status.overview import Overview, Served

if TYPE_CHECKING:
    from dpgateway.events.writing import EventWriter

GRACE = 1.0
"""Seconds that Allocates in flight have when their resource stops."""

PROMPT = 2.0
"""Seconds that a reload waits for the drivers of restarted resources; then it logs that, and goes on."""

SETTLED = 12.0
"""Seconds after which the work of a start, a new kubelet or a reload is over, and idle threads have ended."""

_log = bind(__name__)


@dataclass(eq=False)
class _Serving(Served):
    """One resource, and the task that serves it."""

    task: asyncio.Task[None] = field(init=False)
    ours: bool = False
    """Whether this gateway serves it, or resumes in a moment, and no other gateway has taken it over."""
    follows: bool = True
    """Whether it may take the resource over from a serving gateway. After a handover it only waits for the successor's
    end: else the two would take the resource from each other for ever.
    """
    driver: RunningDriver | None = None
    """The driver; None until it is made."""
    old: _Serving | None = None
    """The predecessor, which serves the resource until this one does."""
    next: _Serving | None = None
    """The successor, which waits for its driver to list devices."""
    placed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has taken its predecessor's place."""

    @property
    def has_devices(self) -> bool:
        """Whether the kubelet gets Healthy devices from it."""
        plugin = self.plugin
        if plugin is None or self.task.cancelling():
            return False
        return plugin.resource.served and not plugin.resource.failure and plugin.resource.driver.healthy

    @property
    def pending(self) -> str:
        if self.next is None or (driver := self.next.driver) is None or driver.healthy:
            return ""
        said = driver.state.value
        nothing = "it hasn't listed its devices yet" if said.devices is None else "it lists no Healthy device"
        return f"the driver of its new configuration has none yet, so the old one serves on: {said.failure or nothing}"


class Gateway:
    """One for the process; used from the event loop."""

    def __init__(self, configuration: Configuration, node_name: str, group: asyncio.TaskGroup) -> None:
        self._first = configuration
        self._group = group
        self._node_name = node_name
        directory, runtime = configuration.kubelet.device_plugins_dir, configuration.runtime.socket
        places = Places.of(directory, configuration.kubelet.pod_resources_socket, (runtime,) if runtime else SOCKETS)
        self._pods = places.pods
        self._node = Node(directory, self._kubelet_changed, self._streaming, self._read)
        self._fronts = NodeFronts(configuration, (node_name, self._node, places), group)
        self._events: EventWriter | None = None
        """None until Kubernetes events are to be written: before, none of their libraries is loaded."""
        self._writing: asyncio.Task[None] | None = None
        self._everywhere: list[asyncio.Task[None]] = []
        """The tasks that no resource owns."""
        self._settling: asyncio.TimerHandle | None = None
        self._lingers = False
        """Whether it serves on only until another gateway has taken over."""
        self._serving: dict[str, _Serving] = {}
        self._changing = asyncio.Lock()
        """Held while resources are added, removed or restarted: by a reload, or by a change of front."""
        self.changed = Signal()
        """Notified when the status may have changed."""
        self.overview = Overview(node_name, self._fronts.holdings, self._fronts.client, self._serving, self.changed)
        """The gateway's status."""
        self.overview.cluster = self._cluster_figures
        self.overview.on_other_front = self._fronts.pools.on_other_front

    def start(self) -> None:
        self._everywhere = [
            self._spawn("watch the kubelet", self._node.run),
            self._spawn("sweep", self._sweep),
            *(self._spawn(name, run) for name, run in self._fronts.work),
        ]
        self._start_dra(self._first)
        self._start_switch(self._first)
        self._write_events(self._first)
        resources = self._first.resources
        for config in resources:
            self._begin(config)
        self._settle()
        number = f"{len(resources)} resource{'s' if len(resources) != 1 else ''}"
        _log.info("serving %s to the kubelet of %s", number, self._node.directory)

    def _spawn(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return self._group.create_task(supervised(name, run), name=name)

    def _start_dra(self, configuration: Configuration) -> None:
        """Starts the DRA front, once it is needed."""
        if (front := self._fronts.add_dra(configuration)) is not None:
            for value in front.reporting.values:
                value.subscribe(self.changed.notify)
            self.overview.dra = front
            self._everywhere.append(self._spawn("serve DRA", front.run))
        if (served := self._fronts.dra) is not None:
            served.withdraw(withdrawn=configuration.dra.withdraw)
            # Claims of an earlier configuration are why there is a front: it keeps their driver's name.
            if self._first.dra.driver is None and configuration.dra.driver not in (None, served.us.driver):
                text = "dra.driver changes with the next start of the gateway only: it serves the claims of %s"
                _log.warning(text, served.us.driver)

    def _start_switch(self, configuration: Configuration) -> None:
        """Has the resources with ``front: auto`` change their fronts, from now on those of this configuration."""
        if (switch := self._fronts.add_switch(configuration, self)) is not None:
            self.changed.subscribe(switch.look)
            self._everywhere.append(self._spawn("change fronts", switch.run))
        if self._fronts.switch is not None:
            self._fronts.switch.configure(configuration.resources, self._front_now)

    def _front_now(self, name: str) -> str | None:
        """The front that serves the resource; None if none does."""
        serving = self._serving.get(name)
        return serving.config.value.on if serving is not None and self._is_ours(serving) else None

    def _write_events(self, configuration: Configuration) -> None:
        """Begins or ends to write Kubernetes events, as configured."""
        wanted = configuration.cluster.events
        if wanted and self._events is None:
            from dpgateway.events.writing import event_writer  # noqa: PLC0415  18 MB with its libraries

            server = self._fronts.dra.server if self._fronts.dra is not None else None
            about = self._node_name, self.overview, self.changed
            self._events = event_writer(configuration, about, self._fronts.threads, server)
        if wanted and self._events is not None and self._writing is None:
            self._writing = self._spawn("write events", self._events.run)
            self._everywhere.append(self._writing)
        elif not wanted and self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _cluster_figures(self) -> ClusterFigures:
        servers = {one.server for one in (self._fronts.dra, self._events) if one is not None}
        requests = sum((one.requests for one in servers), Counter[tuple[str, str, str]]())
        answers = [one.up for one in servers if one.up is not None]
        events = dict(self._events.outcomes) if self._events is not None else {}
        return ClusterFigures(all(answers) if answers else None, requests, events)

    async def _sweep(self) -> None:
        """Removes the sockets that earlier gateways left of resources no longer configured."""
        await self._node.there.wait()
        with suppress(OSError):
            self.last.unlink()  # it was meant for an earlier gateway: this one did follow
        removed = 0
        # The lock decides: the files of a live gateway stay.
        for names in left_behind(self._node.directory, self._serving):
            try:
                removed += names.remove_unowned()
            except (KubeletError, OSError) as error:
                _log.warning("what an earlier gateway left behind stays: %s", error)
        if removed:
            text = "removed the sockets that an earlier gateway left of resources that aren't configured: %d"
            _log.info(text, removed)

    # its resources

    @property
    def resources(self) -> tuple[ResourceConfig, ...]:
        """The configured resources; of a restarted one the new configuration, served once its driver has devices."""
        return tuple((serving.next or serving).config.value for serving in self._serving.values())

    def configuration(self, web: WebSettings) -> dict[str, object]:
        """The configuration in force, as plain values, and the node. ``web``: the settings of the pages, which the
        gateway doesn't serve itself.
        """
        served = replace(self._first, resources=self.resources, web=web)
        return {"node": self._node_name, "configuration": to_json(served)}

    async def apply(self, changes: Changes, new: Configuration) -> None:
        """Applies a reload; unchanged resources don't notice. ``new``: the whole configuration."""
        async with self._changing:
            await self._apply(changes, new)

    async def _apply(self, changes: Changes, new: Configuration) -> None:
        self._start_dra(new)
        self._start_switch(new)
        self._write_events(new)
        # A change concerns the successor of a resource that is being restarted.
        latest = {name: serving.next or serving for name, serving in self._serving.items()}
        # One that is amended stays on its front: another pool may have another one, to which it is moved (`move`).
        amended = [replace(one, chosen=latest[one.name].config.value.chosen) for one in changes.amended]
        changes = replace(
            changes,
            added=tuple(map(self._fronts.chosen, changes.added)),
            amended=tuple(amended),
            restarted=tuple(map(self._fronts.chosen, changes.restarted)),
        )

        for config in changes.same:
            known = latest[config.name].config
            known.set(replace(known.value, where=config.where))
        for config in changes.amended:
            latest[config.name].config.set(config)

        # All members of a pool are added before any begins, because each needs to know the whole pool. A restarted
        # resource that its old driver still serves stays in its old pool until the new driver lists.
        restarted = {config.name for config in changes.restarted}
        moved = [config for config in changes.amended if "pool" in changes.keys[config.name]]
        for config in (*moved, *changes.added, *changes.restarted):
            serving = self._serving.get(config.name)
            if serving is not None and (serving.has_devices if config.name in restarted else serving.next):
                continue
            self._fronts.pools.add(config)

        for config in changes.added:
            self._begin(config)
        await asyncio.gather(*map(self._end, changes.removed), *map(self._begin_again, changes.restarted))

        # The status shows the resources in the configuration's order.
        for config in new.resources:
            self._serving[config.name] = self._serving.pop(config.name)
        self._settle()

    def _begin(self, config: ResourceConfig) -> None:
        config = self._fronts.chosen(config)
        self._fronts.pools.add(config)
        self._fronts.expect(config)
        serving = self._serving[config.name] = _Serving(watched(config), time.monotonic())
        serving.task = self._spawn(config.name, partial(self._serve, serving))
        self.changed.notify()

    async def _begin_again(self, config: ResourceConfig) -> None:
        """Restarts a resource, with another driver or other options. Returns after PROMPT if the old one serves on."""
        old = self._serving[config.name]
        await self._stop_next(old)
        old.next = new = _Serving(watched(config), time.monotonic(), history=old.history, old=old)
        new.task = self._spawn(config.name, partial(self._serve, new))
        self.changed.notify()
        placed = asyncio.create_task(new.placed.wait(), name=f"{config.name} placed")
        try:
            done, _ = await asyncio.wait({placed, new.task}, timeout=PROMPT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            placed.cancel()
        if not done and old.pending:  # else the old one takes long to close
            extra = {"resource": config.name, "driver": config.driver, "reason": old.pending}
            _log.warning("resource %s goes on as before: %s", config.name, old.pending, extra=extra)

    async def _take_the_place(self, new: _Serving, old: _Serving, driver: RunningDriver) -> None:
        """Returns once the old one has ended: it serves while it offers devices and the new driver has none."""
        driver.state.subscribe(self.changed.notify)
        # One that leaves its front offers nothing, and may keep from its successor what that needs to list devices.
        while old.has_devices and self._fronts.offers(old.config.value) and not driver.healthy:
            await self.changed.wait(self.changed.version)
        # Ownership carries over: another gateway may have taken the resource from the old one.
        new.ours, new.follows = self._is_ours(old), old.follows
        config = new.config.value
        self._fronts.expect(config)
        await _ended(old.task)
        # Also while the old one ended. Asked for it again, the other gateway would give it back.
        if new.follows and not old.follows:
            new.ours, new.follows = False, False
        self._placed(config)
        self._serving[config.name] = new
        old.next = new.old = None
        new.placed.set()

    def _placed(self, config: ResourceConfig) -> None:
        """The resource has this front, and this pool, from now on."""
        self._fronts.expect(config)
        self._fronts.moved(config)
        self._fronts.pools.add(config)

    # changes of front

    def serves_on(self, name: str, front: str) -> bool:
        """Whether this gateway serves the resource on this front, and isn't about to restart it."""
        serving = self._serving.get(name)
        if serving is None or serving.next is not None or serving.plugin is None or serving.config.value.on != front:
            return False
        return serving.plugin.resource.served and not serving.task.cancelling()

    def streams(self, name: str) -> bool:
        """Whether a kubelet streams the list of the resource."""
        serving = self._serving.get(name)
        return serving is not None and serving.plugin is not None and serving.plugin.streaming

    def offer(self) -> None:
        """Offers on the device plugin what may be offered there now."""
        for serving in self._serving.values():
            if serving.plugin is not None and serving.config.value.on == FRONT:
                serving.plugin.resource.inventory.offer(offered=self._fronts.offers(serving.config.value))

    async def move(self, names: Iterable[str]) -> None:
        """Restarts the resources that aren't on the front that they should have."""
        async with self._changing:
            await asyncio.gather(*map(self._begin_on_front, names))

    async def _begin_on_front(self, name: str) -> None:
        if (serving := self._serving.get(name)) is not None:
            latest = (serving.next or serving).config.value
            if (config := self._fronts.chosen(latest)).on != latest.on:
                await self._begin_again(config)

    async def _end(self, config: ResourceConfig) -> None:
        await self._stop_next(self._serving[config.name])
        await _ended(self._serving[config.name].task)
        del self._serving[config.name]
        self._fronts.forget(config.name)
        self.changed.notify()
        # Only now: until its task had ended, the resource could grant.
        self._fronts.pools.remove(config.name)

    async def _stop_next(self, serving: _Serving) -> None:
        if serving.next is not None:
            await _ended(serving.next.task)
            serving.next = None

    async def _serve(self, serving: _Serving) -> None:
        """Serves one resource until it is cancelled, and cleans up after it."""
        while True:
            try:
                await self._serve_once(serving)
            except* _Over:
                pass
            if (task := asyncio.current_task()) is not None and task.cancelling():  # the group raised _Over instead
                raise asyncio.CancelledError

    async def _serve_once(self, serving: _Serving) -> None:
        """Raises _Over, in a group, when another gateway has the resource, or it must begin again."""
        fronts, before = self._fronts, serving.config.value
        config = serving.config = watched(fronts.chosen(before))  # drops the subscribers of the last run
        name = config.value.name
        if config.value.on != before.on and serving.old is None:  # another gateway has moved it
            self._placed(config.value)
        log = bind(_log, resource=name, driver=config.value.driver)
        async with asyncio.TaskGroup() as group:
            driver = serving.driver = RunningDriver(config, self._node_name, fronts.threads, log, fronts.after_close)
            driver.inform(HeldDevices(fronts.usage(config.value), config), unfit)
            driving = group.create_task(driver.run(), name=f"{name} driver")
            if serving.old is not None:
                await self._take_the_place(serving, serving.old, driver)
            # One that lingers takes nothing back from its successor, whatever a reload restarts meanwhile.
            follows = serving.follows and not self._lingers
            plugin = serving.plugin = fronts.plugin(config, driver, group, follows=follows)
            for value in plugin.values:
                value.subscribe(self.changed.notify)
            plugin.standing.subscribe(serving.note)
            serving.note()
            self.changed.notify()
            # The kubelet was seen before this plugin existed, so no event comes for it.
            if self._node.kubelet:
                plugin.kubelet(Change.NEW)
            given = False
            try:
                with suppress(OnOtherFront):
                    given = await plugin.run()
                    serving.follows = serving.follows and not given  # at once: it may be stopped while it drains
            finally:
                await uncancelled(_leave(plugin, driving))  # also if it is stopped while it begins again
                serving.ours = (serving.ours or plugin.resource.served) and not (given or plugin.taken_back)
            # Ends the group, and with it the driver.
            raise _Over

    # the kubelet

    def _kubelet_changed(self, change: Change) -> None:
        self.changed.notify()
        self._fronts.kubelet(change)
        if change is Change.NEW:
            self._settle()
        for plugin in self._plugins():
            plugin.kubelet(change)

    async def _read(self) -> None:
        """Returns when a read of the checkpoint that began after the call is published."""
        await self._fronts.holdings.reader.read()

    def _streaming(self) -> bool:
        return any(plugin.streaming for plugin in self._plugins())

    def _plugins(self) -> list[OnFront]:
        return [serving.plugin for serving in list(self._serving.values()) if serving.plugin is not None]

    def _settle(self) -> None:
        """Returns freed memory to the kernel after SETTLED: starts and reloads allocate much for a short time."""
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(SETTLED, memory.give_back)

    # health

    @property
    def serves(self) -> bool:
        """Whether any resource is served."""
        return any(plugin.resource.served for plugin in self._plugins())

    @property
    def ours(self) -> tuple[str, ...]:
        """The resources that would be unserved if this gateway ended now."""
        names = tuple(name for name, serving in self._serving.items() if self._is_ours(serving))
        return (*names, *self._fronts.passing)

    @property
    def given(self) -> bool:
        """Whether another gateway has taken any resource over."""
        return any(not serving.follows for serving in self._serving.values())

    @staticmethod
    def _is_ours(serving: _Serving) -> bool:
        return serving.ours or (serving.plugin is not None and serving.plugin.resource.served)

    def followed(self, own: str) -> bool | None:
        """Whether another gateway's pod is on this node; None if that can't be seen. ``own``: our pod's uid."""
        try:
            return other_of_us(self._pods, own)
        except OSError:
            return None

    def say_ending(self, own: str) -> None:
        """Marks this gateway, in the pod ``own``, as terminating, so that no other terminating one waits for it."""
        self._lingers = True
        with suppress(OSError):  # the other one waits for longer
            say_ending(self._pods, own)

    @property
    def last(self) -> Path:
        """The file that says that no gateway follows this one."""
        return self._node.directory / FOLDER / LAST

    async def works(self) -> None:
        """Returns when the event loop and the workers have done the work queued before: the watchdog's check."""
        await self._fronts.threads.call("say that it works", lambda: None)

    # the end

    async def close(self) -> None:
        """Stops all resources concurrently, then the rest. Takes at most GRACE and the limits of server and driver."""
        if self._settling is not None:
            self._settling.cancel()
        self._fronts.ending()
        servings = [one for serving in self._serving.values() for one in (serving, serving.next) if one is not None]
        # Drivers are hurried before the cancellation, so that each close() has the short limit from its start.
        for serving in servings:
            if serving.driver is not None:
                serving.driver.hurry()
        tasks = {*self._everywhere, *(serving.task for serving in servings)}
        for task in tasks:
            if not task.cancelling():  # a second cancellation would interrupt a resource that is stopping
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._fronts.close()

    def abandon(self) -> None:
        """Removes all sockets now, while things still run; from any thread."""
        for plugin in self._plugins():
            plugin.abandon()
        self._fronts.abandon()


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancels the task and waits for its end; its outcome is ignored."""
    task.cancel()
    await asyncio.wait({task})


async def _leave(plugin: OnFront, driving: asyncio.Task[None]) -> None:
    """Drains and closes a plugin while its driver closes."""
    async with AsyncExitStack() as end:  # in reverse order
        end.push_async_callback(asyncio.wait, {driving})  # before the group cancels it again, as it closes
        end.push_async_callback(plugin.close)
        end.callback(driving.cancel)  # the driver closes while the server says goodbye
        end.push_async_callback(plugin.drain, GRACE)


class _Over(Exception):
    """A resource is no longer served, although it wasn't stopped."""


async def supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Runs a task again, with a pause, after a bug or for want of a thread; logs that, and the other tasks go on."""

    def failed(error: Exception) -> None:
        if isinstance(error, NoThread):
            _log.error("%s failed, and starts again: %s", name, error)
        else:
            _log.error("a bug: %s failed, and starts again", name, exc_info=error)

    await retry(run, failed)

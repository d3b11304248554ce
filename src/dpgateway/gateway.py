"""The gateway: which resources there are, and the run of each, from its driver to the kubelet.

Theory of operation. Each resource has one task (:meth:`Gateway._serve`), which runs a driver and, above it, a plugin.
It ends only when it is cancelled; when another gateway takes the resource over, the task begins again and waits for
that gateway's end. A reload (:meth:`Gateway.apply`) does one of these to each resource:

- *same, amended*: its observable configuration gets the new value. Whoever must act on it subscribes; all others read
  it where they use it.
- *added, removed*: the task is started, or cancelled and awaited.
- *restarted* (another driver, or other options): a second task runs the new driver beside the old plugin. The old one
  serves until the new driver lists a Healthy device, because a list that hangs or is empty would take the kubelet's
  devices away. Then the old task ends, and the new one goes on with a plugin of its own (``old``, ``next``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dpgateway.cdi.directories import SpecDirectories
from dpgateway.cdi.own import OwnSpecs
from dpgateway.config import Changes, Configuration, ResourceConfig, WebSettings, to_json, watched
from dpgateway.deviceplugin.api import LIST_LIMIT, only
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.fitness import unfit
from dpgateway.deviceplugin.handover.coordinator import Coordinator
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.plugin import Front, Plugin
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.server.sockets import left_behind
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.drivers.running import CallsAfterClose, RunningDriver
from dpgateway.errors import KubeletError, NoThread
from dpgateway.kit import memory
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import retry, uncancelled
from dpgateway.kit.threads import Threads
from dpgateway.node.directory import Places
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from dpgateway.node.pods import other_of_us, say_ending
from dpgateway.node.runtime import SOCKETS, Runtime
from dpgateway.resource.held import HeldDevices
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.ownership import FOLDER, LAST
from dpgateway.resource.pools import Pools
from dpgateway.resource.resource import Common
from dpgateway.resource.specs import SpecKeeper
from dpgateway.status.overview import Overview, Served

GRACE = 1.0
"""Seconds that Allocates in flight have when their resource stops."""

PROMPT = 2.0
"""Seconds for which a reload waits for the drivers of resources that are restarted; then it says so, and goes on."""

SETTLED = 12.0
"""Seconds after which all is done that a start, a new kubelet or another configuration brings with it; idle threads
have ended, too.
"""

_log = bind(__name__)


@dataclass(eq=False)
class _Serving(Served):
    """One resource, and the task that serves it."""

    task: asyncio.Task[None] = field(init=False)
    ours: bool = False
    """Whether this gateway serves it, or goes on to do so in a moment, and no other one has taken it over."""
    follows: bool = True
    """Whether it takes over from a gateway that serves already. One that was handed over only waits for that one's end,
    because otherwise the two would take it from each other for ever.
    """
    driver: RunningDriver | None = None
    """None until it is made."""
    old: _Serving | None = None
    """What serves the same resource until this does."""
    next: _Serving | None = None
    """The same resource as it is to be served, once the driver of that has devices."""
    placed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is in the place of the one before it."""

    @property
    def has_devices(self) -> bool:
        """Whether a kubelet gets Healthy devices from it."""
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
        self._node_name, self._threads = node_name, Threads()
        names = [config.name for config in configuration.resources]
        directory = configuration.kubelet.device_plugins_dir
        runtime = configuration.runtime.socket
        places = Places.of(directory, configuration.kubelet.pod_resources_socket, (runtime,) if runtime else SOCKETS)
        self._node = Node(directory, self._kubelet_changed, self._streaming, self._read)
        self._holdings = NodeHoldings(self._node, places, names, self._threads)
        client = KubeletClient(directory, only(configuration.kubelet.apis), group)
        self._after_close, self._pods = CallsAfterClose(), places.pods
        orphans = Orphans(self._holdings, directory, configuration.state_dir, self._threads)
        self._pools = Pools(orphans, self._after_close)
        handover = Coordinator(self._pools.together, group)
        cdi_dirs = configuration.runtime.cdi_dirs
        specs = SpecDirectories(cdi_dirs, Complaint(_log, "a CDI spec doesn't count: %s"))
        own = OwnSpecs(configuration.state_dir, cdi_dirs[-1], directory, Complaint(_log, "a CDI spec: %s"))
        self._spec_keeper = SpecKeeper(own, self._holdings.by_resource, orphans, self._threads)
        cdi = CdiDelivery(specs, own, self._threads, Runtime(runtime).cdi)
        throttle = ListThrottle(self._node.written)
        common = Common(directory, configuration.state_dir, self._threads, self._pools, LIST_LIMIT)
        self._front = Front(common, self._holdings, client, handover, cdi, throttle)
        self._everywhere: list[asyncio.Task[None]] = []
        """The tasks that no resource owns."""
        self._settling: asyncio.TimerHandle | None = None
        self._serving: dict[str, _Serving] = {}
        self.changed = Signal()
        """When the status may be another one."""
        self.overview = Overview(self._node_name, self._holdings, client, self._serving, self.changed)
        """What the gateway says of itself."""

    def start(self) -> None:
        self._everywhere = [
            self._spawn("watch the kubelet", self._node.run),
            self._spawn("know what containers hold", self._holdings.run),
            self._spawn("sweep", self._sweep),
            self._spawn("follow the pools", self._pools.run),
            self._spawn("keep CDI specs", self._spec_keeper.run),
        ]
        resources = self._first.resources
        for config in resources:
            self._begin(config)
        self._settle()
        number = f"{len(resources)} resource{'s' if len(resources) != 1 else ''}"
        _log.info("serving %s to the kubelet of %s", number, self._node.directory)

    def _spawn(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return self._group.create_task(supervised(name, run), name=name)

    async def _sweep(self) -> None:
        """Removes what earlier gateways left of resources that aren't configured any more."""
        await self._node.there.wait()
        with suppress(OSError):
            self.last.unlink()  # it was said of an earlier gateway, for this one has come after all
        removed = 0
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
        """Those that are served now, or will be once their drivers have devices."""
        return tuple((serving.next or serving).config.value for serving in self._serving.values())

    def configuration(self, web: WebSettings) -> dict[str, object]:
        """What it serves, as plain values, and for which node. ``web``: the pages, which others serve."""
        served = replace(self._first, resources=self.resources, web=web)
        return {"node": self._node_name, "configuration": to_json(served)}

    async def apply(self, changes: Changes, order: Iterable[str]) -> None:
        """Takes a reload over; resources that are the same don't notice. ``order``: all names, as the new configuration
        has them.
        """
        # What runs on, or waits for its driver still.
        latest = {name: serving.next or serving for name, serving in self._serving.items()}
        for config in changes.same:
            known = latest[config.name].config
            known.set(replace(known.value, where=config.where))
        for config in changes.amended:
            latest[config.name].config.set(config)

        # Each resource needs to know its whole pool before any begins; but one that is served as before for now, until
        # its new driver lists, stays in its old pool as long.
        restarted = {config.name for config in changes.restarted}
        moved = [config for config in changes.amended if "pool" in changes.keys[config.name]]
        for config in (*moved, *changes.added, *changes.restarted):
            serving = self._serving.get(config.name)
            if serving is not None and (serving.has_devices if config.name in restarted else serving.next):
                continue
            self._pools.add(config)

        for config in changes.added:
            self._begin(config)
        await asyncio.gather(*map(self._end, changes.removed), *map(self._begin_again, changes.restarted))
        for name in order:
            self._serving[name] = self._serving.pop(name)
        self._settle()

    def _begin(self, config: ResourceConfig) -> None:
        self._holdings.add(config.name)
        self._pools.add(config)
        serving = self._serving[config.name] = _Serving(watched(config), time.monotonic())
        serving.task = self._spawn(config.name, partial(self._serve, serving))
        self.changed.notify()

    async def _begin_again(self, config: ResourceConfig) -> None:
        """With another driver, or other options of it. Returns after PROMPT if the old one serves on."""
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
        """Returns once the old one has ended: it serves until there is no device to lose."""
        driver.state.subscribe(self.changed.notify)
        while old.has_devices and not driver.healthy:
            await self.changed.wait(self.changed.version)
        new.ours, new.follows = self._is_ours(old), old.follows
        await _ended(old.task)
        config = new.config.value
        self._serving[config.name] = new
        self._pools.add(config)
        old.next = new.old = None
        new.placed.set()

    async def _end(self, config: ResourceConfig) -> None:
        await self._stop_next(self._serving[config.name])
        await _ended(self._serving[config.name].task)
        del self._serving[config.name]
        self.changed.notify()
        self._pools.remove(config.name)

    async def _stop_next(self, serving: _Serving) -> None:
        if serving.next is not None:
            await _ended(serving.next.task)
            serving.next = None

    async def _serve(self, serving: _Serving) -> None:
        """Serves one resource until it is cancelled; then nothing of it is left."""
        while True:
            try:
                await self._serve_once(serving)
            except* _Over as over:
                serving.follows &= not any(one.given for one in over.exceptions if isinstance(one, _Over))
            if (task := asyncio.current_task()) is not None and task.cancelling():  # the group raised _Over instead
                raise asyncio.CancelledError

    async def _serve_once(self, serving: _Serving) -> None:
        """Raises _Over, in a group, when the resource is another gateway's, or must begin again."""
        config = serving.config = watched(serving.config.value)  # who read the last one has ended
        name = config.value.name
        log = bind(_log, resource=name, driver=config.value.driver)
        async with asyncio.TaskGroup() as group:
            driver = serving.driver = RunningDriver(config, self._node_name, self._threads, log, self._after_close)
            driver.inform(HeldDevices(self._holdings.by_resource[name], config), unfit)
            driving = group.create_task(driver.run(), name=f"{name} driver")
            if serving.old is not None:
                await self._take_the_place(serving, serving.old, driver)
            plugin = serving.plugin = Plugin(config, driver, self._front, group, follows=serving.follows)
            for value in plugin.values:
                value.subscribe(self.changed.notify)
            plugin.registrar.standing.subscribe(serving.note)
            serving.note()
            self.changed.notify()
            if self._node.kubelet:
                plugin.registrar.kubelet(Change.NEW)
            given = False
            try:
                given = await plugin.run()
            finally:
                await uncancelled(_leave(plugin, driving))  # also if it is stopped while it begins again
                serving.ours = (serving.ours or plugin.resource.served) and not (given or plugin.taken_back)
            raise _Over(given=given)

    # the kubelet

    def _kubelet_changed(self, change: Change) -> None:
        self.changed.notify()
        if change is Change.NEW:
            self._front.client.new_kubelet()
            self._settle()
        for plugin in self._plugins():
            plugin.registrar.kubelet(change)

    async def _read(self) -> None:
        """Returns when the checkpoint, as it is after the call, has been read."""
        await self._holdings.reader.read()

    def _streaming(self) -> bool:
        return any(plugin.registrar.streaming for plugin in self._plugins())

    def _plugins(self) -> list[Plugin]:
        return [serving.plugin for serving in list(self._serving.values()) if serving.plugin is not None]

    def _settle(self) -> None:
        """Much has been allocated, and some of it is soon free again."""
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(SETTLED, memory.give_back)

    # whether it works

    @property
    def serves(self) -> bool:
        """Whether a resource is served."""
        return any(plugin.resource.served for plugin in self._plugins())

    @property
    def ours(self) -> tuple[str, ...]:
        """The resources that nobody would serve if this gateway ended now."""
        return tuple(name for name, serving in self._serving.items() if self._is_ours(serving))

    @property
    def given(self) -> bool:
        """Whether another gateway has taken a resource over."""
        return any(not serving.follows for serving in self._serving.values())

    @staticmethod
    def _is_ours(serving: _Serving) -> bool:
        return serving.ours or (serving.plugin is not None and serving.plugin.resource.served)

    def followed(self, own: str) -> bool | None:
        """Whether another gateway's pod is on this node; None if that can't be seen. ``own``: the uid of ours."""
        try:
            return other_of_us(self._pods, own)
        except OSError:
            return None

    def say_ending(self, own: str) -> None:
        """Another gateway that is told to end, too, isn't to wait for this one, whose pod has the uid ``own``."""
        with suppress(OSError):  # it waits for longer
            say_ending(self._pods, own)

    @property
    def last(self) -> Path:
        """The file that says that no gateway comes after this one."""
        return self._node.directory / FOLDER / LAST

    async def works(self) -> None:
        """Returns when the event loop and the workers have done what they were given."""
        await self._threads.call("say that it works", lambda: None)

    # the end

    async def close(self) -> None:
        """Stops every resource at once, then the rest. Seconds at most: GRACE, and those of server and driver."""
        if self._settling is not None:
            self._settling.cancel()
        servings = [one for serving in self._serving.values() for one in (serving, serving.next) if one is not None]
        for serving in servings:
            if serving.driver is not None:
                serving.driver.hurry()
        tasks = {*self._everywhere, *(serving.task for serving in servings)}
        for task in tasks:
            if not task.cancelling():  # a second time would interrupt a resource that is being stopped
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._front.client.close()

    def abandon(self) -> None:
        """Removes all names at once, whatever still runs; from any thread."""
        for plugin in self._plugins():
            plugin.abandon()


async def _ended(task: asyncio.Task[None]) -> None:
    """Ends it, whatever it does."""
    task.cancel()
    await asyncio.wait({task})


async def _leave(plugin: Plugin, driving: asyncio.Task[None]) -> None:
    async with AsyncExitStack() as end:  # what comes last is done first
        end.push_async_callback(asyncio.wait, {driving})  # before the group cancels it again, as it closes
        end.push_async_callback(plugin.close)
        end.callback(driving.cancel)  # the driver closes while the server says goodbye
        end.push_async_callback(plugin.drain, GRACE)


class _Over(Exception):
    """A resource isn't served any more, although it wasn't stopped."""

    def __init__(self, *, given: bool) -> None:
        super().__init__()
        self.given = given


async def supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """A bug in one task is logged, and the task starts again; it doesn't end the others. So does one that had no
    thread.
    """

    def failed(error: Exception) -> None:
        if isinstance(error, NoThread):
            _log.error("%s failed, and starts again: %s", name, error)
        else:
            _log.error("a bug: %s failed, and starts again", name, exc_info=error)

    await retry(run, failed)

"""The gateway: which resources there are, what a new configuration or another front changes, and what none owns.

Theory of operation. Each resource has one task (``serving``). A reload (:meth:`Gateway.apply`) does one of these to it:

- *same, amended*: its observable configuration gets the new value. Subscribers act on it; all others read it at each
  use.
- *added, removed*: the task is started, or cancelled and awaited.
- *restarted* (another driver, front, or options): a second task runs the new driver beside the old plugin, because a
  list that hangs or is empty would take the kubelet's devices away. It takes the old one's place once it has devices.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpgateway.config import Changes, Configuration, ResourceConfig, WebSettings, to_json, watched
from dpgateway.deviceplugin.server.sockets import left_behind
from dpgateway.deviceplugin.values import FRONT
from dpgateway.errors import KubeletError, NoThread
from dpgateway.fronts import NodeFronts
from dpgateway.kit import memory
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import retry
from dpgateway.node.directory import Places
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from dpgateway.node.pods import other_of_us, say_ending
from dpgateway.node.runtime import SOCKETS
from dpgateway.resource.fronted import OnFront
from dpgateway.resource.ownership import FOLDER, LAST
from dpgateway.serving import NodeParts, ServedResource
from dpgateway.status.figures import ClusterFigures
from dpgateway.status.overview import Overview
from dpgateway.status.readiness import History

if TYPE_CHECKING:
    from dpgateway.events.writing import EventWriter

PROMPT = 2.0
"""Seconds that a reload waits for the drivers of restarted resources; then it logs that, and goes on."""

SETTLED = 12.0
"""Seconds after which the work of a start, a new kubelet or a reload is over, and idle threads have ended."""

_log = bind(__name__)


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
        self._serving: dict[str, ServedResource] = {}
        """`_serving` contains what serves each resource, keyed by name."""
        self._changing = asyncio.Lock()
        """Held while resources are added, removed or restarted: by a reload, or by a change of front."""
        self.changed = Signal()
        """Notified when the status may have changed."""
        self._parts = NodeParts(node_name, self._node, self._fronts, self.changed, lambda: self._lingers)
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
            served.members.withdraw(withdrawn=configuration.dra.withdraw)
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
        return serving.config.value.on if serving is not None and serving.is_ours else None

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
        return tuple(serving.latest for serving in self._serving.values())

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
        latest = {name: serving.chain[-1] for name, serving in self._serving.items()}
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
        self._placed(self._serve(config))

    async def _begin_again(self, config: ResourceConfig, then: ResourceConfig | None = None) -> None:
        """Restarts a resource, with another driver, other options, or on another front. Returns after PROMPT if the old
        one serves on. ``then``: what serves it as soon as that has devices, which ``config`` had before.
        """
        old = self._serving[config.name]
        await old.stop_next()
        old.next = new = self._serve(config, old)
        if then is not None:
            new.goes_on, new.next = True, self._serve(then, new)
        placed = asyncio.create_task(new.in_place.wait(), name=f"{config.name} placed")
        try:
            done, _ = await asyncio.wait({placed, new.task}, timeout=PROMPT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            placed.cancel()
        if not done and old.pending:  # else the old one takes long to close
            extra = {"resource": config.name, "driver": config.driver, "reason": old.pending}
            _log.warning("resource %s goes on as before: %s", config.name, old.pending, extra=extra)

    def _serve(self, config: ResourceConfig, old: ServedResource | None = None) -> ServedResource:
        """Starts the task of a resource. ``old``: its predecessor, which serves on at first."""
        history = old.history if old is not None else History()
        serving = ServedResource(
            watched(config), time.monotonic(), history=history, parts=self._parts, placed=self._placed, old=old
        )
        serving.task = self._spawn(config.name, serving.run)
        self.changed.notify()
        return serving

    def _placed(self, serving: ServedResource) -> None:
        self._serving[serving.config.value.name] = serving

    # changes of front

    def serves_on(self, name: str, front: str) -> bool:
        """Whether this gateway serves the resource on this front, and isn't about to restart it."""
        serving = self._serving.get(name)
        return serving is not None and serving.serves_on(front)

    def streams(self, name: str) -> bool:
        """Whether a kubelet streams the list of the resource."""
        serving = self._serving.get(name)
        return serving is not None and serving.plugin is not None and serving.plugin.streaming

    def elsewhere(self, name: str) -> str:
        """Which other gateway serves the resource, and when this one takes over; empty if none does."""
        serving = self._serving.get(name)
        return serving.plugin.resource.elsewhere.value if serving is not None and serving.plugin is not None else ""

    def offer(self) -> None:
        """Offers on the device plugin what may be offered there now."""
        for serving in self._serving.values():
            if serving.plugin is not None and serving.config.value.on == FRONT:
                serving.plugin.resource.inventory.list.offer(offered=self._fronts.offers(serving.config.value))

    async def move(self, names: Iterable[str]) -> None:
        """Restarts the resources that aren't on the front that they should have."""
        async with self._changing:
            await asyncio.gather(*map(self._begin_on_front, names))

    async def _begin_on_front(self, name: str) -> None:
        serving = self._serving.get(name)
        if serving is None or (latest := self._fronts.chosen(serving.latest)).on == serving.latest.on:
            return
        if serving.waits:  # the new driver hasn't listed a device anywhere
            await self._begin_again(self._fronts.chosen(serving.config.value), latest)
        else:
            await self._begin_again(latest)

    async def _end(self, config: ResourceConfig) -> None:
        await self._serving[config.name].stop_next()
        await self._serving[config.name].stop()
        del self._serving[config.name]
        self._fronts.forget(config.name)
        self.changed.notify()
        # Only now: until its task had ended, the resource could grant.
        self._fronts.pools.remove(config.name)

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
        mine = [(name, one) for name, one in self._serving.items() if one.is_ours]
        names = tuple([name for name, one in mine if not self._fronts.given(one.config.value)])
        return (*names, *self._fronts.passing)

    @property
    def given(self) -> bool:
        """Whether another gateway has taken any resource over."""
        return any(not serving.follows for serving in self._serving.values())

    def followed(self, own: str) -> bool | None:
        """Whether another gateway's pod is on this node; None if that can't be seen. ``own``: our pod's uid."""
        try:
            return other_of_us(self._pods, own)
        except OSError:
            return None

    def say_ending(self, own: str) -> None:
        """Marks this gateway, in the pod ``own``, as terminating, so that no other terminating one waits for it."""
        self._lingers = True
        self._fronts.told_to_end()
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
        servings = [one for serving in self._serving.values() for one in serving.chain]
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


async def supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Runs a task again, with a pause, after a bug or for want of a thread; logs that, and the other tasks go on."""

    def failed(error: Exception) -> None:
        if isinstance(error, NoThread):
            _log.error("%s failed, and starts again: %s", name, error)
        else:
            _log.error("a bug: %s failed, and starts again", name, exc_info=error)

    await retry(run, failed)

"""The gateway: the resources of a node by name, and what a reload or a change of front does to them.

Theory of operation. Each resource has one task (``serving``). To a reload (:meth:`Gateway.apply`) it is one of these:

- *same, amended*: its observable configuration gets the new value. Subscribers act on it; all others read it at each
  use.
- *added, removed*: the task is started, or cancelled and awaited.
- *restarted* (another driver, front, or options): a second task runs the new driver beside the old plugin, because a
  list that hangs or is empty would take the kubelet's devices away. It takes the old one's place once it has devices.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from dpgateway.config import Changes, Configuration, ResourceConfig, to_json
from dpgateway.deviceplugin.values import FRONT
from dpgateway.errors import NoThread
from dpgateway.fronts import NodeFronts
from dpgateway.kit import memory
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import retry
from dpgateway.node.directory import Places
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from dpgateway.node.runtime import SOCKETS
from dpgateway.node_tasks import NodeTasks
from dpgateway.other_gateways import OtherGateways
from dpgateway.resource.fronted import OnFront
from dpgateway.serving import NodeParts, ServedResource, watched
from dpgateway.status.overview import Overview
from dpgateway.status.readiness import History

PROMPT = 2.0
"""Timeout in seconds of a reload for the drivers of restarted resources; then it logs that, and returns."""

SETTLED = 12.0
"""Seconds until the work of a start, a new kubelet or a reload is over, and idle threads have ended."""

_log = bind(__name__)


class Gateway:
    """One for the process; used from the event loop."""

    def __init__(self, configuration: Configuration, node_name: str, group: asyncio.TaskGroup) -> None:
        self._first = configuration
        self._group, self._node_name = group, node_name
        directory, runtime = configuration.kubelet.device_plugins_dir, configuration.runtime.socket
        places = Places.of(directory, configuration.kubelet.pod_resources_socket, (runtime,) if runtime else SOCKETS)
        self._node = Node(directory, self._kubelet_changed, self._streaming, self._read_checkpoint)
        self._fronts = NodeFronts(configuration, (node_name, self._node, places), group)
        self._trimming: asyncio.TimerHandle | None = None
        self.serving: dict[str, ServedResource] = {}
        """`serving` contains the served resources, keyed by name. Others only read it."""
        self._changing = asyncio.Lock()
        """Held while resources are added, removed or restarted: by a reload, or by a change of front."""
        self.changed = Signal()
        """Notified when the status may have changed."""
        self.others = OtherGateways(self._node, places.pods, self._fronts, self.serving)
        self._parts = NodeParts(node_name, self._node, self._fronts, self.changed, lambda: self.others.lingers)
        self.overview = Overview(node_name, self._fronts.holdings, self._fronts.client, self.serving, self.changed)
        """The gateway's status."""
        self.overview.on_other_front = self._fronts.pools.on_other_front
        self._tasks = NodeTasks(configuration, self._parts, self.overview, self, self._spawn)

    async def start(self) -> None:
        """Returns once all resources begin. A disk that hangs delays that by seconds."""
        await self._tasks.configure(self._first)
        self._tasks.start(("watch the kubelet", self._node.run), ("sweep", self.others.sweep), *self._fronts.work)
        resources = self._first.resources
        for config in resources:
            self._start(config)
        self._trim_later()
        number = f"{len(resources)} resource{'s' if len(resources) != 1 else ''}"
        _log.info("serving %s to the kubelet of %s", number, self._node.directory)

    def _spawn(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return self._group.create_task(supervised(name, run), name=name)

    # its resources

    @property
    def resources(self) -> tuple[ResourceConfig, ...]:
        """The configured resources; of a restarted one the new configuration, served once its driver has devices."""
        return tuple(serving.latest for serving in self.serving.values())

    def configuration(self, wanted: Configuration) -> dict[str, object]:
        """The configuration in force, as plain values, and the node. ``wanted``: that of the last reload, with the keys
        of the start that no reload changes. A resource may go on with its old configuration.
        """
        served = replace(wanted, resources=self.resources)
        return {"node": self._node_name, "configuration": to_json(served)}

    async def apply(self, changes: Changes, new: Configuration) -> None:
        """Applies a reload; unchanged resources don't notice. ``new``: the whole configuration."""
        async with self._changing:
            await self._tasks.configure(new)
            added = [self._fronts.chosen(config) for config in changes.added]
            restarted = [self._fronts.chosen(config) for config in changes.restarted]
            # A change concerns the successor of a resource that is being restarted.
            latest = {name: serving.chain[-1].config for name, serving in self.serving.items()}
            # An amended resource stays on its front. A new pool may have the other one: `move` follows.
            amended = [replace(config, chosen=latest[config.name].value.chosen) for config in changes.amended]

            for config in changes.same:
                known = latest[config.name]
                known.set(replace(known.value, where=config.where))
            for config in amended:
                latest[config.name].set(config)

            # All members of a pool are added before any begins, because each needs to know the whole pool. A restarted
            # resource that its old driver still serves stays in its old pool until the new driver lists.
            moved = [config for config in amended if "pool" in changes.keys[config.name]]
            waiting = {config.name for config in moved if self.serving[config.name].next is not None}
            waiting |= {config.name for config in restarted if self.serving[config.name].has_devices}
            for config in (*moved, *added, *restarted):
                if config.name not in waiting:
                    self._fronts.pools.add(config)
            # One whose new configuration can't be used stays in its old pool until a later one can, or is the old one.
            going = [config for config in amended if config.name in self._fronts.pools.going]
            for config in (*moved, *going, *restarted, *changes.unusable, *changes.same):
                self._fronts.pools.follow(config)

            # An added one may be a removed one under a new name, and begin before that has ended.
            if changes.removed:
                self._fronts.pools.end([config.name for config in changes.removed])
            for config in added:
                self._start(config)
            await asyncio.gather(*map(self._remove, changes.removed), *map(self._restart, restarted))

            # The status shows the resources in the configuration's order.
            for config in new.resources:
                self.serving[config.name] = self.serving.pop(config.name)
            self._trim_later()

    def _start(self, config: ResourceConfig) -> None:
        config = self._fronts.chosen(config)
        self._fronts.pools.add(config)
        self._fronts.expect(config)
        self._place(self._serve(config))

    async def _restart(self, config: ResourceConfig, then: ResourceConfig | None = None) -> None:
        """Restarts a resource with another driver, other options, or on another front. Returns after PROMPT if the old
        driver still serves. ``then``: the configuration that follows ``config`` once its driver has devices.
        """
        old = self.serving[config.name]
        await old.stop_next()
        old.next = new = self._serve(config, old)
        if then is not None:
            new.continues, new.next = True, self._serve(then, new)
        succeeded = asyncio.create_task(new.succeeded.wait(), name=f"{config.name} placed")
        try:
            done, _ = await asyncio.wait({succeeded, new.task}, timeout=PROMPT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            succeeded.cancel()
        if not done and old.pending:  # else the old one takes long to close
            extra = {"resource": config.name, "driver": config.driver, "reason": old.pending}
            _log.warning("resource %s goes on as before: %s", config.name, old.pending, extra=extra)

    def _serve(self, config: ResourceConfig, old: ServedResource | None = None) -> ServedResource:
        """Starts the task of a resource. ``old``: its predecessor, which serves meanwhile."""
        history = old.history if old is not None else History()
        serving = ServedResource(
            watched(config), time.monotonic(), history=history, parts=self._parts, placed=self._place, old=old
        )
        serving.task = self._spawn(config.name, serving.run)
        self.changed.notify()
        return serving

    def _place(self, serving: ServedResource) -> None:
        self.serving[serving.config.value.name] = serving

    # changes of front

    def offer(self) -> None:
        """Updates the lists of the device plugin after a change of front."""
        for serving in self.serving.values():
            if serving.plugin is not None and serving.config.value.on == FRONT:
                serving.plugin.resource.inventory.list.offer(offered=self._fronts.offers(serving.config.value))

    async def move(self, names: Iterable[str]) -> None:
        """Restarts the resources whose chosen front isn't their present one."""
        async with self._changing:
            await asyncio.gather(*map(self._move, names))

    async def _move(self, name: str) -> None:
        serving = self.serving.get(name)
        if serving is None or (latest := self._fronts.chosen(serving.latest)).on == serving.latest.on:
            return
        if serving.waits:  # the new driver hasn't listed a device anywhere
            await self._restart(self._fronts.chosen(serving.config.value), latest)
        else:
            await self._restart(latest)

    async def _remove(self, config: ResourceConfig) -> None:
        await self.serving[config.name].end()
        del self.serving[config.name]
        self._fronts.forget(config.name)
        self.changed.notify()
        # Not before its task has ended: until then the resource could grant.
        self._fronts.pools.remove(config.name)

    # the kubelet

    def _kubelet_changed(self, change: Change) -> None:
        self.changed.notify()
        self._fronts.kubelet(change)
        if change is Change.NEW:
            self._trim_later()
        for plugin in self._plugins():
            plugin.kubelet(change)

    async def _read_checkpoint(self) -> None:
        """Returns once a read of the checkpoint that began after the call is published."""
        await self._fronts.holdings.reader.read()

    def _streaming(self) -> bool:
        return any(plugin.streaming for plugin in self._plugins())

    def _plugins(self) -> list[OnFront]:
        return [serving.plugin for serving in list(self.serving.values()) if serving.plugin is not None]

    def _trim_later(self) -> None:
        """Returns freed memory to the kernel after SETTLED: starts and reloads allocate much, briefly."""
        if self._trimming is not None:
            self._trimming.cancel()
        self._trimming = asyncio.get_running_loop().call_later(SETTLED, memory.give_back)

    # health

    @property
    def serves(self) -> bool:
        """Whether any resource is served."""
        return any(plugin.resource.served for plugin in self._plugins())

    async def works(self) -> None:
        """Returns when the event loop and the workers have done the work queued before: the watchdog's check."""
        await self._fronts.threads.call("say that it works", lambda: None)

    # the end

    async def close(self) -> None:
        """Stops all resources concurrently, then the rest. Takes at most GRACE and the limits of server and driver."""
        if self._trimming is not None:
            self._trimming.cancel()
        self._fronts.ending()
        servings = [one for serving in self.serving.values() for one in serving.chain]
        # Drivers are hurried before the cancellation, so that each close() has the short limit from its start.
        for serving in servings:
            if serving.driver is not None:
                serving.driver.hurry()
        tasks = {*self._tasks.all, *(serving.task for serving in servings)}
        for task in tasks:
            if not task.cancelling():  # a second cancellation would interrupt a resource that is stopping
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._fronts.close()
        # What drivers still do ends with the process, which has nothing left to wait for.
        for ownership in tuple(self._fronts.pools.elsewhere.late.values()):
            ownership.abandon()

    def abandon(self) -> None:
        """Removes all sockets now, while things still run; from any thread."""
        for plugin in self._plugins():
            plugin.abandon()
        self._fronts.abandon()


async def supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Restarts a task, with backoff, after a bug or for want of a thread, and logs that. Other tasks are unaffected."""

    def failed(error: Exception) -> None:
        if isinstance(error, NoThread):
            _log.error("%s failed, and starts again: %s", name, error)
        else:
            _log.error("a bug: %s failed, and starts again", name, exc_info=error)

    await retry(run, failed)

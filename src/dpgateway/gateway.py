"""The gateway: which resources there are, and the run of each, from its driver to the kubelet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from dpgateway.config import Configuration, ResourceConfig
from dpgateway.deviceplugin.api import only
from dpgateway.deviceplugin.plugin import Front, Plugin
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.server.sockets import left_behind
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError
from dpgateway.node.directory import Places
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from dpgateway.process.log import bind
from dpgateway.process.tasks import persist
from dpgateway.process.threads import Threads
from dpgateway.status import Report, Standing, report

GRACE = 1.0
"""Seconds that Allocates in flight have when their resource stops."""

_log = bind(__name__)


class Gateway:
    """One for the process; used from the event loop."""

    def __init__(self, configuration: Configuration, directory: Path, node_name: str, group: asyncio.TaskGroup) -> None:
        """``directory``: the kubelet's device-plugins directory."""
        self._resources = configuration.resources
        self._group = group
        self._node_name, self._threads = node_name, Threads()
        names = [config.name for config in self._resources]
        places = Places.of(directory, configuration.kubelet.pod_resources_socket)
        self._node = Node(places, names, self._threads, self._kubelet_changed, self._streaming)
        client = KubeletClient(directory, only(configuration.kubelet.apis), group)
        self._front = Front(self._node, client, self._threads, configuration.state_dir)
        self._plugins: dict[str, Plugin] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._began = time.monotonic()

    def start(self) -> None:
        self._spawn("watch the kubelet", self._node.run)
        self._spawn("sweep", self._sweep)
        for config in self._resources:
            self._spawn(config.name, partial(self._serve, config))
        number = f"{len(self._resources)} resource{'s' if len(self._resources) != 1 else ''}"
        _log.info("serving %s to the kubelet of %s", number, self._node.directory)

    def _spawn(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(self._group.create_task(supervised(name, run), name=name))

    async def _sweep(self) -> None:
        """Removes what earlier gateways left of resources that aren't configured any more."""
        await self._node.there.wait()
        removed = 0
        for names in left_behind(self._node.directory, [config.name for config in self._resources]):
            try:
                removed += names.remove_unserved()
            except (KubeletError, OSError) as error:
                _log.warning("what an earlier gateway left behind stays: %s", error)
        if removed:
            text = "removed the sockets that an earlier gateway left of resources that aren't configured: %d"
            _log.info(text, removed)

    async def _serve(self, config: ResourceConfig) -> None:
        """Serves one resource until it is cancelled; then nothing of it is left."""
        log = bind(_log, resource=config.name, driver=config.driver)
        async with asyncio.TaskGroup() as group:
            driver = RunningDriver(config, self._node_name, self._threads, log)
            plugin = self._plugins[config.name] = Plugin(config, driver, self._front, group)
            if self._node.kubelet:
                plugin.registrar.kubelet(Change.NEW)
            driving = group.create_task(driver.run(), name=f"{config.name} driver")
            try:
                await plugin.run()
            finally:
                try:
                    await plugin.drain(GRACE)
                finally:
                    driving.cancel()  # the driver closes while the server says goodbye
                    await plugin.close()

    # the kubelet

    def _kubelet_changed(self, change: Change) -> None:
        if change is Change.NEW:
            self._front.client.new_kubelet()
        for plugin in self._plugins.values():
            plugin.registrar.kubelet(change)

    def _streaming(self) -> bool:
        return any(plugin.registrar.streaming for plugin in self._plugins.values())

    def report(self) -> Report:
        return report(self._standings(), kubelet=self._node.kubelet)

    def _standings(self) -> Iterable[Standing]:
        age = time.monotonic() - self._began
        for config in self._resources:
            plugin = self._plugins.get(config.name)
            yield Standing.of(config, plugin, age, directory=self._node.there.is_set())

    # the end

    async def close(self) -> None:
        """Stops every resource at once, then the rest. Seconds at most: GRACE, and those of server and driver."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._front.client.close()

    def abandon(self) -> None:
        """Removes all names at once, whatever still runs; from any thread."""
        for plugin in self._plugins.values():
            plugin.abandon()


async def supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """A bug in one task is logged, and the task starts again; it doesn't end the others."""
    await persist(run, lambda error: _log.error("a bug: %s failed, and starts again", name, exc_info=error))

"""The plugin manager: registers the plugins of plugins_registry, and drops those whose socket has gone.

Each second it compares the sockets that the watcher has seen with the plugins that it has registered, as the kubelet's
reconciler does (pkg/kubelet/pluginmanager/reconciler, operationexecutor/operation_generator.go, 1.37). A failed
registration is tried again after 0.5 s, 1 s, ... up to 2 min, each socket on its own. A kubelet without DRA has no
handler for its plugins, and tells them so.
"""

import asyncio
from pathlib import Path

from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.dra.drivers import DraDrivers, DraInstance
from dpgateway_simulator.kubelet.dra.watcher import PluginWatcher
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.wire.plugin_calls import CallError, PluginCalls

FOLDER = "plugins_registry"
TYPE = "DRAPlugin"
DIAL_TIMEOUT = 10.0
FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 122.0  # goroutinemap/exponentialbackoff


class PluginRegistry:
    """The registered plugins of one incarnation, by socket; `drivers` has those of DRA."""

    def __init__(self, incarnation: Incarnation, root: Path, node: ClusterNode, drivers: DraDrivers) -> None:
        self._incarnation, self._root, self._pauses, self._drivers = incarnation, root, node.pauses, drivers
        self._changed = asyncio.Event()
        self._watcher = PluginWatcher(root / FOLDER, self._changed.set)
        self._registered: dict[Path, tuple[int, DraInstance]] = {}
        """The watcher's number of each registered socket, and its plugin."""
        self._failures: dict[Path, tuple[int, float]] = {}
        """The number of failures of a socket, and when it may be tried again."""
        self._busy: set[Path] = set()

    async def run(self) -> None:
        """Never returns."""
        for name in (FOLDER, "plugins"):
            (self._root / name).mkdir(mode=0o750, exist_ok=True)
        self._incarnation.tasks.spawn("kubelet: plugin watcher", self._watcher.run())
        await self._incarnation.sleep(self._pauses.first_look)
        while True:
            # A socket that was seen again, under the same name, is another one: its plugin is dropped first.
            for path, (number, instance) in list(self._registered.items()):
                if self._watcher.seen.get(path) != number:
                    del self._registered[path]
                    self._drivers.remove(instance)
            for path in self._failures.keys() - self._watcher.seen.keys():
                del self._failures[path]
            for path, number in self._watcher.seen.items():
                due = self._incarnation.now() >= self._failures.get(path, (0, 0.0))[1]
                if path not in self._registered and path not in self._busy and due:
                    self._busy.add(path)
                    self._incarnation.tasks.spawn(f"kubelet: register {path.name}", self._try(path, number))
            await self._changed.wait()
            self._changed.clear()
            await self._incarnation.sleep(self._pauses.registry)

    async def _try(self, path: Path, number: int) -> None:
        """Registers the plugin of one socket, or has that tried again later."""
        try:
            await self._register(path, number)
            self._failures.pop(path, None)
        except RefusedError as error:
            if self._incarnation.ended:
                return
            failures = self._failures.get(path, (0, 0.0))[0] + 1
            pause = min(FIRST_BACKOFF * 2 ** (failures - 1), LONGEST_BACKOFF)
            self._failures[path] = failures, self._incarnation.now() + pause
            self._incarnation.emit("plugin refused", socket=path.name, reason=str(error), again=pause)
            self._incarnation.tasks.spawn(f"kubelet: {path.name} again", self._later(pause))
        finally:
            self._busy.discard(path)
            self._changed.set()

    async def _later(self, pause: float) -> None:
        await self._incarnation.sleep(pause)
        self._changed.set()

    async def _register(self, path: Path, number: int) -> None:
        """RegisterPlugin. Raises RefusedError."""
        calls = PluginCalls(self._root, path, self._incarnation.behaviour.user_agent)
        try:
            try:
                async with asyncio.timeout(DIAL_TIMEOUT):
                    await calls.dial()
                info = await calls.info()
            except (OSError, TimeoutError) as error:
                raise RefusedError(f"RegisterPlugin error -- dial failed at socket {path}, err: {error}") from error
            except CallError as error:
                text = f"RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {path}"
                raise RefusedError(f"{text}, err: {error}") from error
            refusal, instance = "", None
            if info.type != TYPE or self._incarnation.behaviour.dra == "none":
                refusal = f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}"
            elif injected := self._incarnation.node.misbehaviour.refusal(info.name):
                refusal = f"RegisterPlugin error -- plugin validation failed with err: {injected[1]}"
            else:
                made = DraInstance(info.name, Path(info.endpoint), tuple(info.supported_versions))
                try:
                    instance = self._drivers.add(made)
                except RefusedError as error:
                    refusal = f"RegisterPlugin error -- plugin registration failed with err: {error}"
            try:
                await calls.notify(refusal)
            except CallError as error:
                if instance is not None:
                    self._drivers.remove(instance)
                text = "RegisterPlugin error -- failed to send registration status at socket"
                raise RefusedError(f"{text} {path}, err: {error}") from error
        finally:
            calls.close()
        if instance is None:
            raise RefusedError(refusal)
        self._registered[path] = number, instance
        self._incarnation.emit("plugin registered", driver=info.name, socket=path.name, endpoint=info.endpoint)

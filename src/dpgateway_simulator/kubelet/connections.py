"""The plugins registered per resource: the base of all releases, and registration up to 1.24.

Up to 1.24 Register returns at once, and the kubelet connects afterwards. In 1.8 to 1.11 a new plugin replaces the old
one, and the kubelet ends the old stream. In 1.12 to 1.24 calls go to the newest plugin; older streams stay open, and
their lists still replace the resource's devices. `clients` covers the later releases.

`endpoints` contains the plugin that calls go to, keyed by resource; `_opened` contains every connection of the
incarnation, also replaced ones, because the end of the process closes them all. At a stream's end its task changes the
resource's devices only if its endpoint is still the current one: another plugin may have registered meanwhile.
"""

import dataclasses
import os.path
from abc import ABC, abstractmethod
from pathlib import Path

from dpgateway_simulator.kubelet.endpoint import PluginEndpoint, dial, follow
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.plugin import PluginClient
from dpgateway_simulator.wire.dialects import Registration


class PluginConnections(ABC):
    """The connections of one incarnation. `register` raises RefusedError."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self.endpoints: dict[str, PluginEndpoint] = {}
        self._opened: list[PluginEndpoint] = []

    async def register(self, request: Registration) -> None:
        """Up to 1.24: returns at once, and `_run` connects."""
        endpoint = self._open(request)
        name = f"kubelet: {endpoint.resource} at {endpoint.name}"
        self._incarnation.tasks.spawn(name, self._run(endpoint, request))

    @abstractmethod
    async def _run(self, endpoint: PluginEndpoint, request: Registration) -> None:
        """Follows the plugin's lists, from the connection to the end of the stream."""

    def expect(self, resource: str) -> None:
        """Adds a stopped endpoint for a resource that the checkpoint names; the grace period runs from now."""
        self.endpoints[resource] = PluginEndpoint(
            resource, "", self._incarnation.node.directory, stopped_at=self._incarnation.now()
        )

    def close(self) -> None:
        """Closes all connections, as the end of a process does."""
        for endpoint in self._opened:
            endpoint.close()

    def drop(self, resource: str | None = None) -> int:
        """Breaks the connections to a resource's plugins, or to all plugins; returns their number."""
        broken = [one for one in self._opened if resource in (None, one.resource) and one.stopped_at is None]
        for endpoint in broken:
            endpoint.close()
        return len(broken)

    def _open(self, request: Registration) -> PluginEndpoint:
        # Go's filepath.Join of the directory and Register's endpoint field
        path = Path(os.path.normpath(f"{self._incarnation.node.directory}/{request.endpoint}"))
        plugin = PluginClient(self._incarnation.behaviour, request.resource, path, request.endpoint)
        self._opened.append(PluginEndpoint(request.resource, request.endpoint, path, plugin))
        return self._opened[-1]

    def _connected(self, endpoint: PluginEndpoint) -> None:
        self.endpoints[endpoint.resource] = endpoint
        self._incarnation.emit("connected", **endpoint.about)

    def _failed(self, endpoint: PluginEndpoint, reason: object) -> None:
        self._incarnation.emit("registration failed", **endpoint.about, reason=str(reason))


class FirstListConnections(PluginConnections):
    """1.8: a plugin is current from its first list on, and its end deletes its devices (deviceplugin/manager.go)."""

    async def _run(self, endpoint: PluginEndpoint, request: Registration) -> None:
        def replace() -> None:
            old = self.endpoints.get(endpoint.resource)
            self._connected(endpoint)
            if old is not None:
                old.stop(self._incarnation.now())

        await follow(self._incarnation, endpoint, first=replace)
        if self.endpoints.get(endpoint.resource) is endpoint:
            del self.endpoints[endpoint.resource]
            self._incarnation.ledger.change(endpoint.resource, endpoint.devices, ())
        endpoint.stop(self._incarnation.now())


class ReplacingConnections(PluginConnections):
    """1.9 to 1.11: the new plugin inherits the old one's devices as Unhealthy, the old one is stopped (manager.go)."""

    async def _run(self, endpoint: PluginEndpoint, request: Registration) -> None:
        old = self.endpoints.get(endpoint.resource)
        if old is not None:
            # kubernetes #62773: before the fix they kept their health, so an equal list was no difference and the
            # resource stayed at 0.
            keeps = self._incarnation.behaviour.replaced_keep_health
            inherited = (one if keeps else dataclasses.replace(one, health="Unhealthy") for one in old.devices.values())
            endpoint.devices = {one.id: one for one in inherited}
        try:
            if self._incarnation.behaviour.blocking_dial:
                await dial(self._incarnation, endpoint)
        except RefusedError as error:
            return self._failed(endpoint, error)
        if self.endpoints.get(endpoint.resource) is not old:
            endpoint.stop(self._incarnation.now())
            return self._failed(endpoint, "some other endpoint is added while this one is initialized")
        endpoint.options = old.options if old is not None and request.options is None else request.options
        self._connected(endpoint)
        if old is not None:
            old.stop(self._incarnation.now())
        await follow(self._incarnation, endpoint)
        endpoint.stop(self._incarnation.now())
        if self.endpoints.get(endpoint.resource) is endpoint:
            self._incarnation.ledger.mark_unhealthy(endpoint.resource)
        return None


class NewestConnections(PluginConnections):
    """1.12 to 1.24: calls go to the newest plugin; older streams stay open and their lists count (runEndpoint)."""

    async def _run(self, endpoint: PluginEndpoint, request: Registration) -> None:
        try:
            await dial(self._incarnation, endpoint)
        except RefusedError as error:
            return self._failed(endpoint, error)
        endpoint.options = request.options
        self._connected(endpoint)
        await follow(self._incarnation, endpoint)
        endpoint.stop(self._incarnation.now())
        if self.endpoints.get(endpoint.resource) is endpoint:
            self._incarnation.ledger.mark_unhealthy(endpoint.resource)
        return None

"""Registration from 1.25 on: Register returns after the dial and GetDevicePluginOptions (kubernetes #109016).

A *client* is a connection, an *endpoint* the connection that the device manager calls. Up to 1.36 a resource has one
client, and the end of any of its streams disconnects it, even a newer one (kubernetes #121994). From 1.37 on a resource
has a client per socket path, and a path can't register again while it is connected.

Order of a registration: client stored, dial, options, endpoint connected, then ListAndWatch in a task of its own. A
failure before the endpoint is connected removes the client and leaves the old endpoint in place.
"""

import asyncio
from pathlib import Path

from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.endpoint import PluginEndpoint, dial, follow
from dpgateway_simulator.kubelet.errors import PluginError, RefusedError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.wire.dialects import Registration


class SingleConnections(PluginConnections):
    """1.25 to 1.36: one client per resource (plugin/v1beta1/handler.go); Register's options are ignored."""

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__(incarnation)
        self._clients: dict[str, PluginEndpoint] = {}

    async def register(self, request: Registration) -> None:
        endpoint = self._open(request)
        self._add(endpoint)
        try:
            await dial(self._incarnation, endpoint)
            await self._greet(endpoint, request)
        except RefusedError as error:
            self._remove(endpoint)
            self._failed(endpoint, error)
            raise
        except asyncio.CancelledError:  # the caller cancelled Register; only kubelets from 1.35 on see it
            self._remove(endpoint)
            self._incarnation.emit("register given up", **endpoint.about)
            raise
        self._connected(endpoint)
        self._spawn(endpoint, self._run(endpoint))

    async def _greet(self, endpoint: PluginEndpoint, request: Registration) -> None:
        deadline = request.deadline if self._incarnation.behaviour.register_context else None
        try:
            endpoint.options = await endpoint.reach().options(deadline)
        except PluginError as error:
            raise RefusedError(f"failed to get device plugin options: {error}") from error

    async def _run(self, endpoint: PluginEndpoint) -> None:
        """Follows the stream. At its end the kubelet looks the client up again, and may find a newer one (#121994)."""
        await follow(self._incarnation, endpoint)
        client = self._client(endpoint)
        if client is None:
            return
        self._remove(client)
        client.close()
        self._disconnected(client)

    def _add(self, endpoint: PluginEndpoint) -> None:
        self._clients[endpoint.resource] = endpoint

    def _remove(self, endpoint: PluginEndpoint) -> None:
        self._clients.pop(endpoint.resource, None)

    def _client(self, endpoint: PluginEndpoint) -> PluginEndpoint | None:
        return self._clients.get(endpoint.resource)

    def _disconnected(self, client: PluginEndpoint) -> None:
        current = self.endpoints.get(client.resource)
        if current is not None:
            self._incarnation.ledger.mark_unhealthy(client.resource)
            current.stopped_at = self._incarnation.now()
        elif self._incarnation.behaviour.disconnect_crashes:
            raise self._incarnation.nil_pointer("devicemanager.(*ManagerImpl).PluginDisconnected")


class ManyConnections(SingleConnections):
    """From 1.37: clients and endpoints by socket path (PR #135437). A path can't register twice."""

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__(incarnation)
        self._clients_of: dict[str, list[PluginEndpoint]] = {}
        self._connected_at: dict[str, dict[Path, PluginEndpoint]] = {}

    async def _greet(self, endpoint: PluginEndpoint, request: Registration) -> None:
        await super()._greet(endpoint, request)
        stored = self._connected_at.setdefault(endpoint.resource, {})
        if endpoint.path in stored:
            # `register` removes every client of the path on this error, and so orphans the connected one, as the
            # kubelet does.
            raise RefusedError(f"device plugin already connected: {endpoint.path}")
        stored[endpoint.path] = endpoint

    def _add(self, endpoint: PluginEndpoint) -> None:
        self._clients_of.setdefault(endpoint.resource, []).append(endpoint)

    def _remove(self, endpoint: PluginEndpoint) -> None:
        others = [one for one in self._clients_of.get(endpoint.resource, []) if one.path != endpoint.path]
        self._clients_of[endpoint.resource] = others

    def _client(self, endpoint: PluginEndpoint) -> PluginEndpoint | None:
        return next((one for one in self._clients_of.get(endpoint.resource, []) if one.path == endpoint.path), None)

    def _disconnected(self, client: PluginEndpoint) -> None:
        stored = self._connected_at.get(client.resource, {})
        if client.path not in stored:
            return
        stored.pop(client.path).stopped_at = self._incarnation.now()
        if stored:
            self._connected(next(iter(stored.values())))  # any of them: Go's map order
        else:
            del self._connected_at[client.resource]
            self._incarnation.ledger.mark_unhealthy(client.resource)

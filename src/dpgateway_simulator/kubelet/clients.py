"""Registration from 1.25 on: Register returns after the dial and GetDevicePluginOptions (kubernetes #109016).

A *client* is a connection, an *endpoint* the connection that the device manager calls. Up to 1.36 a resource has one
client, and the end of any of its streams disconnects it, even a newer one (kubernetes #121994). From 1.37 on a resource
has a client per socket path (PR #135437), and a path can't register again while it is connected.

`_clients` contains the clients, keyed by resource, from 1.37 on by resource and path. `_connected_at` is used from 1.37
on only: the endpoints that Register has connected, keyed by resource and then by path.

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


class ClientConnections(PluginConnections):
    """The clients of plugin/v1beta1/handler.go. Register's options are ignored."""

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__(incarnation)
        self._by_path = incarnation.behaviour.clients == "many"
        self._clients: dict[tuple[str, Path | None], PluginEndpoint] = {}
        self._connected_at: dict[str, dict[Path, PluginEndpoint]] = {}

    async def register(self, request: Registration) -> None:
        endpoint = self._open(request)
        key = self._key(endpoint)
        if self._by_path:
            self._clients.setdefault(key, endpoint)  # the kubelet keeps a list of them, and finds its first
        else:
            self._clients[key] = endpoint
        try:
            await dial(self._incarnation, endpoint)
            deadline = request.deadline if self._incarnation.behaviour.register_context else None
            try:
                endpoint.options = await endpoint.reach().options(deadline)
            except PluginError as error:
                raise RefusedError(f"failed to get device plugin options: {error}") from error
            if self._by_path:
                stored = self._connected_at.setdefault(endpoint.resource, {})
                if endpoint.path in stored:
                    # The path's client is then removed, and so the connected one orphaned, as by the kubelet.
                    raise RefusedError(f"device plugin already connected: {endpoint.path}")
                stored[endpoint.path] = endpoint
        except RefusedError as error:
            self._clients.pop(key, None)
            self._failed(endpoint, error)
            raise
        except asyncio.CancelledError:  # the caller cancelled Register; only kubelets from 1.35 on see it
            self._clients.pop(key, None)
            self._incarnation.emit("register given up", **endpoint.about)
            raise
        self._connected(endpoint)
        self._incarnation.tasks.spawn(f"kubelet: {endpoint.resource} at {endpoint.name}", self._run(endpoint, request))

    async def _run(self, endpoint: PluginEndpoint, request: Registration) -> None:
        await follow(self._incarnation, endpoint)

        # At a stream's end the kubelet looks the client up again, and may find a newer one (#121994).
        client = self._clients.pop(self._key(endpoint), None)
        if client is None:
            return
        client.close()
        if self._by_path:
            stored = self._connected_at.get(client.resource, {})
            if client.path not in stored:
                return
            stored.pop(client.path).stopped_at = self._incarnation.now()
            if stored:
                self._connected(next(iter(stored.values())))  # any of them: Go's map order
            else:
                self._incarnation.ledger.mark_unhealthy(client.resource)
        elif (current := self.endpoints.get(client.resource)) is not None:
            self._incarnation.ledger.mark_unhealthy(client.resource)
            current.stopped_at = self._incarnation.now()
        elif self._incarnation.behaviour.disconnect_crashes:
            raise self._incarnation.nil_pointer("devicemanager.(*ManagerImpl).PluginDisconnected")

    def _key(self, endpoint: PluginEndpoint) -> tuple[str, Path | None]:
        return endpoint.resource, endpoint.path if self._by_path else None

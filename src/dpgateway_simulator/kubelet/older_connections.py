"""Registration up to 1.24: Register answers at once, and the kubelet connects afterwards.

1.8 to 1.11: a new plugin replaces the old one, whose stream the kubelet ends. 1.12 to 1.24: the newest is called, older
streams go on and their lists count.
"""

import dataclasses

from dpgateway_simulator.kubelet.connections import Connections
from dpgateway_simulator.kubelet.endpoint import Endpoint, Registration, dial, follow
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.wire.device_list import Device


class FirstListConnections(Connections):
    """1.8: a plugin counts from its first list on, and its end deletes all its devices (deviceplugin/manager.go)."""

    async def register(self, request: Registration) -> None:
        endpoint = self._open(request)
        self._spawn(endpoint, self._run(endpoint))

    async def _run(self, endpoint: Endpoint) -> None:
        await follow(self.life, endpoint, first=lambda: self._replace(endpoint))
        if self.endpoints.get(endpoint.resource) is endpoint:
            del self.endpoints[endpoint.resource]
            self.life.ledger.change(endpoint.resource, (), endpoint.devices.values())
        endpoint.stop(self.life.clock.time())

    def _replace(self, endpoint: Endpoint) -> None:
        old = self.endpoints.get(endpoint.resource)
        self._connected(endpoint)
        if old is not None:
            old.stop(self.life.clock.time())


class ReplacingConnections(Connections):
    """1.9 to 1.11: the new plugin inherits the old one's devices as Unhealthy, the old one is stopped (manager.go)."""

    async def register(self, request: Registration) -> None:
        endpoint = self._open(request)
        self._spawn(endpoint, self._run(endpoint, request))

    async def _run(self, endpoint: Endpoint, request: Registration) -> None:
        old = self.endpoints.get(endpoint.resource)
        if old is not None:
            endpoint.devices = {device: self._inherited(one) for device, one in old.devices.items()}
        try:
            if self.life.behaviour.blocking_dial:
                await dial(self.life, endpoint)
        except RefusedError as error:
            return self._failed(endpoint, error)
        if self.endpoints.get(endpoint.resource) is not old:
            endpoint.stop(self.life.clock.time())
            return self._failed(endpoint, "some other endpoint is added while this one is initialized")
        endpoint.options = request.options or (old.options if old else None)
        self._connected(endpoint)
        if old is not None:
            old.stop(self.life.clock.time())
        await follow(self.life, endpoint)
        endpoint.stop(self.life.clock.time())
        if self.endpoints.get(endpoint.resource) is endpoint:
            self.life.ledger.mark_unhealthy(endpoint.resource)
        return None

    def _inherited(self, device: Device) -> Device:
        """With its health as it was before the fix of kubernetes #62773: a Healthy list is then no change."""
        return device if self.life.behaviour.replaced_keep_health else dataclasses.replace(device, health="Unhealthy")


class NewestConnections(Connections):
    """1.12 to 1.24: the newest is called; older streams live on and their lists count (runEndpoint)."""

    async def register(self, request: Registration) -> None:
        endpoint = self._open(request)
        self._spawn(endpoint, self._run(endpoint, request))

    async def _run(self, endpoint: Endpoint, request: Registration) -> None:
        try:
            await dial(self.life, endpoint)
        except RefusedError as error:
            return self._failed(endpoint, error)
        endpoint.options = request.options
        self._connected(endpoint)
        await follow(self.life, endpoint)
        endpoint.stop(self.life.clock.time())
        if self.endpoints.get(endpoint.resource) is endpoint:
            self.life.ledger.mark_unhealthy(endpoint.resource)
        return None

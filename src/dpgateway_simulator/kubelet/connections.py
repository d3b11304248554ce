"""Who is registered for a resource: what all generations of the kubelet have in common."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from dpgateway_simulator.kubelet.endpoint import Endpoint, Registration, opened
from dpgateway_simulator.kubelet.incarnation import Life


class Connections(ABC):
    """`endpoints` is whom the device manager calls, by resource. `register` raises RefusedError."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.endpoints: dict[str, Endpoint] = {}
        self._opened: list[Endpoint] = []

    @abstractmethod
    async def register(self, request: Registration) -> None: ...

    def expect(self, resource: str) -> None:
        """A resource of the checkpoint: a stopped endpoint."""
        self.endpoints[resource] = Endpoint(resource, "", self.life.directory, stopped_at=self.life.clock.time())

    def close(self) -> None:
        """Ends all connections, as the end of the process does."""
        for endpoint in self._opened:
            if endpoint.plugin is not None:
                endpoint.plugin.close()

    def drop(self, resource: str | None = None) -> int:
        """Breaks the connections to the plugins of a resource, or to all; returns how many."""
        broken = [one for one in self._opened if resource in (None, one.resource) and one.stopped_at is None]
        for endpoint in broken:
            if endpoint.plugin is not None:
                endpoint.plugin.close()
        return len(broken)

    def _open(self, request: Registration) -> Endpoint:
        self._opened.append(opened(self.life, request))
        return self._opened[-1]

    def _connected(self, endpoint: Endpoint) -> None:
        self.endpoints[endpoint.resource] = endpoint
        self.life.journal.emit("connected", resource=endpoint.resource, endpoint=endpoint.name)

    def _failed(self, endpoint: Endpoint, reason: object) -> None:
        self.life.journal.emit(
            "registration failed", resource=endpoint.resource, endpoint=endpoint.name, reason=str(reason)
        )

    def _spawn(self, endpoint: Endpoint, work: Coroutine[Any, Any, None]) -> None:
        self.life.tasks.spawn(f"kubelet: {endpoint.resource} at {endpoint.name}", work)

"""One registered plugin: dialling it, following its lists, and whether it is stopped.

pkg/kubelet/cm/devicemanager/endpoint.go, from 1.25 on also plugin/v1beta1/client.go.
"""

import asyncio
import os.path
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway_simulator.kubelet.errors import AllocationError, PluginError, RefusedError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.plugin import PluginClient
from dpgateway_simulator.wire.device_list import Device
from dpgateway_simulator.wire.dialects import Options, Registration

DIAL_TIMEOUT = 10.0
_FIRST_BACKOFF, _BACKOFF_FACTOR = 1.0, 1.6  # grpc-go's connection back-off, without its jitter


@dataclass(eq=False)
class PluginEndpoint:
    """A registered plugin. An endpoint from the checkpoint has no `plugin` and is stopped from the beginning."""

    resource: str
    name: str  # as it was registered
    path: Path
    plugin: PluginClient | None = None
    options: Options | None = None
    stopped_at: float | None = None
    devices: dict[str, Device] = field(default_factory=dict)  # its own last list, where lists are compared

    @property
    def about(self) -> dict[str, str]:
        """For events."""
        return {"resource": self.resource, "endpoint": self.name}

    def reach(self) -> PluginClient:
        """The client to call; AllocationError if the endpoint is stopped."""
        if self.plugin is None or self.stopped_at is not None:
            raise AllocationError(f"endpoint &{{{self.resource} {self.path}}} has been stopped")
        return self.plugin

    def close(self) -> None:
        """Closes the connection, if any."""
        if self.plugin is not None:
            self.plugin.close()

    def stop(self, now: float) -> None:
        self.close()
        self.stopped_at = now

    def expired(self, now: float, grace: float) -> bool:
        return self.stopped_at is not None and now - self.stopped_at > grace


def opened(incarnation: Incarnation, request: Registration) -> PluginEndpoint:
    """An endpoint, not connected yet. Register's endpoint field is joined as by Go's filepath.Join."""
    path = Path(os.path.normpath(f"{incarnation.node.directory}/{request.endpoint}"))
    plugin = PluginClient(incarnation.behaviour, request.resource, path, request.endpoint)
    return PluginEndpoint(request.resource, request.endpoint, path, plugin)


async def dial(incarnation: Incarnation, endpoint: PluginEndpoint) -> None:
    """grpc.WithBlock: retries with backoff for 10 seconds, then raises RefusedError."""
    trying = incarnation.tasks.spawn(f"kubelet: dialling {endpoint.name}", _try(incarnation, endpoint))
    waiting = incarnation.tasks.spawn(f"kubelet: patience with {endpoint.name}", incarnation.sleep(DIAL_TIMEOUT))
    try:
        await asyncio.wait({trying, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not trying.done():
            raise RefusedError("failed to dial device plugin: context deadline exceeded")
        trying.result()
    finally:
        trying.cancel()
        waiting.cancel()


async def _try(incarnation: Incarnation, endpoint: PluginEndpoint) -> None:
    delay = _FIRST_BACKOFF
    while True:
        incarnation.emit("dialling", **endpoint.about)
        try:
            return await endpoint.reach().dial()
        except OSError:
            await incarnation.sleep(delay)
            delay *= _BACKOFF_FACTOR


async def follow(incarnation: Incarnation, endpoint: PluginEndpoint, first: Callable[[], None] | None = None) -> None:
    """Takes lists until the stream ends or fails; calls `first` after the first list."""
    reason = "EOF"
    incarnation.emit("stream opened", **endpoint.about)
    try:
        async for devices in endpoint.reach().lists():
            take(incarnation, endpoint, devices)
            if first is not None:
                first()
                first = None
    except PluginError as error:
        reason = str(error)
    incarnation.emit("stream ended", **endpoint.about, reason=reason)


def take(incarnation: Incarnation, endpoint: PluginEndpoint, devices: tuple[Device, ...]) -> None:
    """Puts one list into the ledger: the whole list, or its difference to the endpoint's previous one."""
    held_before = _health_of_held(incarnation, endpoint.resource)
    if incarnation.behaviour.list_replaces:
        incarnation.ledger.replace(endpoint.resource, devices)
    else:
        incarnation.ledger.change(endpoint.resource, *_difference(endpoint, devices))
    if incarnation.behaviour.checkpoint_each_list:
        incarnation.save()
    healthy = sum(device.healthy for device in devices)
    ids = tuple(device.id for device in devices)
    incarnation.emit("list received", **endpoint.about, devices=ids, healthy=healthy)
    if incarnation.behaviour.health_status:
        _report_health(incarnation, endpoint.resource, held_before)


def _difference(endpoint: PluginEndpoint, devices: Iterable[Device]) -> tuple[list[Device], list[Device]]:
    """Up to 1.11: (devices added or changed in health, devices removed)."""
    cached, kept, seen = endpoint.devices, [], set()
    for device in devices:
        seen.add(device.id)
        if device.id not in cached or cached[device.id].health != device.health:
            cached[device.id] = device
            kept.append(device)
    gone = [cached.pop(one) for one in tuple(cached) if one not in seen]
    return kept, gone


def _health_of_held(incarnation: Incarnation, resource: str) -> dict[str, str | None]:
    known = incarnation.ledger.known.get(resource, {})
    held = (device for one in incarnation.ledger.holdings.values() if one.resource == resource for device in one.ids)
    return {device: known[device].health if device in known else None for device in held}


def _report_health(incarnation: Incarnation, resource: str, before: dict[str, str | None]) -> None:
    """KEP-4680: a pod's status is updated when a held device changes health or returns, not when it vanishes."""
    after = _health_of_held(incarnation, resource)
    changed = {device for device, health in after.items() if health is not None and health != before.get(device)}
    pods = {one.pod for one in incarnation.ledger.holdings.values() if one.resource == resource and one.ids & changed}
    if pods:
        incarnation.emit("health changed", resource=resource, pods=tuple(sorted(pods)))

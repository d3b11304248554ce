"""One registered plugin: dialling it, following its lists, and whether it still counts.

pkg/kubelet/cm/devicemanager/endpoint.go, from 1.25 on also plugin/v1beta1/client.go.
"""

import asyncio
import os.path
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from grpclib.metadata import Deadline

from dpgateway_simulator.kubelet.errors import AllocationError, PluginError, RefusedError
from dpgateway_simulator.kubelet.incarnation import Life
from dpgateway_simulator.kubelet.plugin import Options, Plugin
from dpgateway_simulator.wire.device_list import Device

DIAL_TIMEOUT = 10.0
_FIRST_BACKOFF, _BACKOFF_FACTOR = 1.0, 1.6  # grpc-go's connection back-off, without its jitter
_NIL = "invalid memory address or nil pointer dereference"


@dataclass(frozen=True)
class Registration:
    """A Register request."""

    version: str
    endpoint: str
    resource: str
    options: Options | None = None
    deadline: Deadline | None = None  # the caller's


@dataclass(eq=False)
class Endpoint:
    """A plugin, or what a checkpoint says was one: then there is no `plugin` and it is stopped from the beginning."""

    resource: str
    name: str  # as it was registered
    path: Path
    plugin: Plugin | None = None
    options: Options | None = None
    stopped_at: float | None = None
    devices: dict[str, Device] = field(default_factory=dict)  # its own last list, where lists are compared

    def live(self) -> Plugin:
        """The plugin to call."""
        if self.plugin is None or self.stopped_at is not None:
            raise AllocationError(f"endpoint &{{{self.resource} {self.path}}} has been stopped")
        return self.plugin

    def stop(self, now: float) -> None:
        if self.plugin is not None:
            self.plugin.close()
        self.stopped_at = now

    def expired(self, now: float, grace: float) -> bool:
        return self.stopped_at is not None and now - self.stopped_at > grace


def opened(life: Life, request: Registration) -> Endpoint:
    """An endpoint that isn't connected yet; the endpoint field is joined as Go's filepath.Join does."""
    path = Path(os.path.normpath(f"{life.directory}/{request.endpoint}"))
    return Endpoint(
        request.resource, request.endpoint, path, Plugin(life.behaviour, request.resource, path, request.endpoint)
    )


async def dial(life: Life, endpoint: Endpoint) -> None:
    """grpc.WithBlock: tries again and again for 10 seconds, then RefusedError."""
    trying = life.tasks.spawn(f"kubelet: dialling {endpoint.name}", _try(life, endpoint))
    waiting = life.tasks.spawn(f"kubelet: patience with {endpoint.name}", life.clock.sleep(DIAL_TIMEOUT))
    try:
        await asyncio.wait({trying, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not trying.done():
            raise RefusedError("failed to dial device plugin: context deadline exceeded")
        trying.result()
    finally:
        trying.cancel()
        waiting.cancel()


async def _try(life: Life, endpoint: Endpoint) -> None:
    delay = _FIRST_BACKOFF
    while True:
        life.journal.emit("dialling", resource=endpoint.resource, endpoint=endpoint.name)
        try:
            return await endpoint.live().dial()
        except OSError:
            await life.clock.sleep(delay)
            delay *= _BACKOFF_FACTOR


async def follow(life: Life, endpoint: Endpoint, first: Callable[[], None] | None = None) -> None:
    """Takes list after list until the stream ends, calling `first` after the first; a plugin's failure ends it."""
    about = {"resource": endpoint.resource, "endpoint": endpoint.name}
    reason = "EOF"
    life.journal.emit("stream opened", **about)
    try:
        async for devices in endpoint.live().lists():
            take(life, endpoint, devices)
            if first is not None:
                first()
                first = None
    except PluginError as error:
        reason = str(error)
    life.journal.emit("stream ended", **about, reason=reason)


def take(life: Life, endpoint: Endpoint, devices: tuple[Device, ...]) -> None:
    """One list into the ledger: whole, or what changed since the endpoint's last one."""
    held_before = _health_of_held(life, endpoint.resource)
    if life.behaviour.list_replaces:
        life.ledger.replace(endpoint.resource, devices)
    else:
        life.ledger.change(endpoint.resource, *_difference(endpoint, devices))
    healthy = sum(device.healthy for device in devices)
    ids = tuple(device.id for device in devices)
    if life.behaviour.checkpoint_each_list:
        life.save()
    life.journal.emit("list received", resource=endpoint.resource, endpoint=endpoint.name, devices=ids, healthy=healthy)
    if life.behaviour.health_status:
        _report_health(life, endpoint.resource, held_before)


def _difference(endpoint: Endpoint, devices: Iterable[Device]) -> tuple[list[Device], list[Device]]:
    """Up to 1.11: what is new or changed its health, and what is gone; the same id again is compared with the first."""
    cached, kept, seen = endpoint.devices, [], set()
    for device in devices:
        seen.add(device.id)
        if device.id not in cached or cached[device.id].health != device.health:
            cached[device.id] = device
            kept.append(device)
    gone = [cached.pop(one) for one in tuple(cached) if one not in seen]
    return kept, gone


def _health_of_held(life: Life, resource: str) -> dict[str, str | None]:
    known = life.ledger.known.get(resource, {})
    held = (device for one in life.ledger.holdings.values() if one.resource == resource for device in one.ids)
    return {device: known[device].health if device in known else None for device in held}


def _report_health(life: Life, resource: str, before: dict[str, str | None]) -> None:
    """KEP-4680: a held device's other health, or its return, makes the pod's status anew; that it vanished doesn't."""
    after = _health_of_held(life, resource)
    changed = {device for device, health in after.items() if health is not None and health != before.get(device)}
    pods = {one.pod for one in life.ledger.holdings.values() if one.resource == resource and one.ids & changed}
    if pods:
        life.journal.emit("health changed", resource=resource, pods=tuple(sorted(pods)))


def nil_pointer(where: str) -> str:
    """The reason of a panic as the Go runtime prints it."""
    return f"panic: runtime error: {_NIL} in {where}"

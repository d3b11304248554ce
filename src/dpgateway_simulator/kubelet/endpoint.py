"""One registered plugin: dialling it, following its lists, and whether it is stopped.

Theory of operation. An endpoint is dialled (`dial`), called while it isn't stopped (`reach`), and followed: `take` puts
each of its lists into the ledger, until the stream ends. When it is stopped, and which endpoint of a resource is
called, differs by release and is decided by the connections (`connections`, `clients`). A stopped endpoint stays: its
`stopped_at` is the beginning of the grace period.

Sources: pkg/kubelet/cm/devicemanager/endpoint.go, from 1.25 on also plugin/v1beta1/client.go.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway_simulator.kubelet.errors import AllocationError, PluginError, RefusedError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.plugin import PluginClient
from dpgateway_simulator.wire.device_list import Device
from dpgateway_simulator.wire.dialects import Options

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
    ledger, behaviour, resource = incarnation.ledger, incarnation.behaviour, endpoint.resource
    before = dict(ledger.known.get(resource, {}))
    if behaviour.list_replaces:
        ledger.replace(resource, devices)
    else:
        ledger.change(resource, endpoint.devices, devices)
    if behaviour.checkpoint_each_list:
        incarnation.save()
    healthy = sum(device.healthy for device in devices)
    ids = tuple(device.id for device in devices)
    incarnation.emit("list received", **endpoint.about, devices=ids, healthy=healthy)

    # KEP-4680: a pod's status is updated when a held device changes health or returns, not when it vanishes.
    if behaviour.health_status:
        known = ledger.known[resource].values()
        changed = {one.id for one in known if one.id not in before or one.health != before[one.id].health}
        uids = {one.pod for one in ledger.holdings.values() if one.resource == resource and one.ids & changed}
        pods = {incarnation.node.pod_names.get(uid, uid) for uid in uids}
        if pods:
            incarnation.emit("health changed", resource=resource, pods=tuple(sorted(pods)))

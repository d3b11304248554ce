"""The health service: how the devices of a driver are, for the status of the pods that hold them.

Theory of operation (pkg/kubelet/cm/dra, 1.34 to 1.37). The kubelet opens one stream for each registration. What a
message doesn't name stays as it was said before; what wasn't said for 30 s is Unknown. The end of a stream clears all
that the kubelet knows of the driver, whichever instance said it. So:

- All devices are said when a stream opens, and again and again (``HealthPace``); in between what changes, at once, but
  not twice within a pause.
- Each message has the newest health and none is queued: gRPC asks for the next one once the last one is written.
- A device that a claim has is said even if it is gone. One of a resource that has no list yet is left out, and stays
  as an earlier gateway said.
- The kubelet takes the time of a message for that of the news in it, so the same bytes do as long as nothing changes.
- Another instance that ends takes our word with it, so :meth:`HealthStreams.repeat` says everything again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import grpc

from dpgateway.dra.claims.records import Given
from dpgateway.dra.wire import health_pb2 as wire
from dpgateway.errors import encodable

HEALTH_SERVICES = {
    "v1.DRAResourceHealth": "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth": "v1alpha1.DRAResourceHealth",
}
"""The gRPC service of each version, newest first, by the name under which it is registered: v1 since 1.37, v1alpha1
since 1.34. Their messages are the same."""
LONGEST_MESSAGE = 1024
"""Bytes of a reason (staging/src/k8s.io/kubelet/pkg/apis/dra-health/v1)."""
LARGEST = 1 << 20
"""Bytes of one message, about; the kubelet's gRPC refuses more than 4 MiB."""
MOST = 8192
"""Devices. A kubelet 1.37 keeps 16,384 of a driver, for 30 s, and logs an error for each message with more: room for
those that claims get meanwhile."""
VANISHED = "vanished: a claim has this device, but the driver doesn't list it any more"

Reasons = Mapping[str, str]
"""`Reasons` contains why a device is Unhealthy, keyed by its id; an empty text for a Healthy one."""


class HealthPace(NamedTuple):
    """How often is said what, in seconds."""

    repeat: float = 10.0
    """Between two messages that say everything: two may be lost before the kubelet's 30 s are over."""
    pause: float = 0.5
    """Between two messages after changes. The kubelet writes a file for each."""
    soon: float = 1.0
    """In place of ``repeat`` while a stream is fresh."""
    fresh: float = 20.0
    """From a stream's beginning, or :meth:`HealthStreams.repeat`: the kubelet learns of another instance's end some
    seconds after it (seen on 1.36)."""


class SaidHealth(NamedTuple):
    """A device as the kubelet is told of it."""

    pool: str
    device: str
    """The name in the slice."""
    unhealthy: str
    """Why it is Unhealthy; empty if it is Healthy."""
    held: bool = False
    """Whether a claim has it."""


def said(
    reasons: Reasons,
    names: Mapping[str, tuple[str, str]],
    given: Collection[Given],
    means: Callable[[str], str | None],
) -> tuple[SaidHealth, ...]:
    """The health of one resource's devices. ``names``: pool and device name, by id; ``given``: what claims have of it,
    perhaps under names of an earlier configuration; ``means``: the device of an offered id.
    """
    found = {names[id_]: reason for id_, reason in reasons.items()}
    for one in given:
        # A device may be given as several shares. Ids are in the order of their devices.
        devices, ids = dict.fromkeys(device for device, _ in one.devices), dict.fromkeys(map(means, one.ids))
        known = tuple(ids) if len(ids) == len(devices) else (None,) * len(devices)
        for device, id_ in zip(devices, known, strict=True):
            found.setdefault((one.pool, device), VANISHED if id_ is None else reasons.get(id_, VANISHED))
    held = {(one.pool, device) for one in given for device, _ in one.devices}
    return tuple([SaidHealth(*name, reason, name in held) for name, reason in found.items()])


def heard(devices: tuple[SaidHealth, ...], most: int = MOST) -> tuple[SaidHealth, ...]:
    """As many devices as the kubelet keeps, those of claims first: only these are in a pod's status."""
    return devices if len(devices) <= most else tuple(sorted(devices, key=lambda one: not one.held)[:most])


def messages(devices: Iterable[SaidHealth], now: int, largest: int = LARGEST) -> list[wire.NodeWatchResourcesResponse]:
    """All devices, in as many messages as their size asks for; one at least, which may be empty. ``now``: in seconds
    since 1970. ``largest``: bytes of a message, if a single device doesn't need more.
    """
    found, size = [wire.NodeWatchResourcesResponse()], 0
    for one in devices:
        text = encodable(one.unhealthy).encode()[:LONGEST_MESSAGE].decode(errors="ignore")
        health = wire.UNHEALTHY if one.unhealthy else wire.HEALTHY
        name = wire.DeviceIdentifier(pool_name=one.pool, device_name=one.device)
        new = wire.DeviceHealth(device=name, health=health, last_updated_time=now, message=text)
        size += (length := new.ByteSize() + 16)
        if size > largest and found[-1].devices:
            found.append(wire.NodeWatchResourcesResponse())
            size = length
        found[-1].devices.append(new)
    return found


class HealthStreams:
    """The streams of one driver. Used from the event loop."""

    def __init__(self, devices: Callable[[], tuple[SaidHealth, ...]], pace: HealthPace | None = None) -> None:
        """``devices``: all devices of the driver, as they are now."""
        self._devices, self._pace = devices, pace or HealthPace()
        self._streams: set[_HealthStream] = set()
        self._built: tuple[tuple[SaidHealth, ...], list[bytes]] = ((), [b""])
        """The last devices, and the messages that say all of them, for all streams."""

    def look(self) -> None:
        """Devices may have changed."""
        for one in self._streams:
            one.woken.set()

    def repeat(self) -> None:
        """Says everything again: the kubelet may have forgotten it."""
        for one in self._streams:
            one.fresh_until, one.all_at = time.monotonic() + self._pace.fresh, float("-inf")
            one.woken.set()

    def end(self) -> None:
        """Ends all streams."""
        for one in self._streams:
            one.ended.set()
            one.woken.set()

    def handlers(self, service: str) -> grpc.GenericRpcHandler:
        watch = grpc.unary_stream_rpc_method_handler(self._watch, wire.NodeWatchResourcesRequest.FromString, None)
        return grpc.method_handlers_generic_handler(service, {"NodeWatchResources": watch})

    async def _watch(self, _: wire.NodeWatchResourcesRequest, _context: object) -> AsyncGenerator[bytes, None]:
        stream = _HealthStream(time.monotonic() + self._pace.fresh)
        self._streams.add(stream)
        try:
            while not stream.ended.is_set():
                stream.woken.clear()
                devices, now = heard(self._devices()), time.monotonic()
                found = []
                every = self._pace.soon if now < stream.fresh_until else self._pace.repeat
                if now >= stream.all_at + every:
                    if self._built[0] != devices:  # written anew only for other devices: there may be thousands
                        self._built = (devices, _written(devices))
                    stream.all_at, found = now, self._built[1]
                elif changed := set(devices).difference(stream.said):
                    found = _written(one for one in devices if one in changed)
                stream.said = devices
                for one in found:
                    yield one
                if found:
                    await _within(self._pace.pause, stream.ended)
                await _within(stream.all_at + every - time.monotonic(), stream.woken)
        finally:
            self._streams.discard(stream)


@dataclass(eq=False, slots=True)
class _HealthStream:
    """One stream of the kubelet."""

    fresh_until: float
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    said: tuple[SaidHealth, ...] = ()
    """What it was told last."""
    all_at: float = float("-inf")
    """When it was told everything, in seconds of the monotonic clock."""


def _written(devices: Iterable[SaidHealth]) -> list[bytes]:
    return [one.SerializeToString() for one in messages(devices, int(time.time()))]


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Returns once the event is set, or after ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()

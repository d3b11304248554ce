"""The status as values, and their JSON, which uses the fields' names.

docs/reference/status.md describes each field.
"""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, cast

from dpgateway.kit.log import LogEvent
from dpgateway.kit.timestamp import timestamp
from dpgateway.resource.front import HolderStatus
from dpgateway.resource.published import (
    ApiServerStatus,
    ClaimStatus,
    DraStatus,
    GivenStatus,
    PoolStatus,
    SlicesStatus,
    SwitchStatus,
)
from dpgateway.resource.standing import Failure, Standing

SCHEMA = 2
"""The version of the status' JSON: raised when a field changes its meaning or is removed, not when one is added."""
VERSION = "0.1.0"
"""The version of this package; importlib.metadata would cost 3 MB."""
Time = str
"""RFC 3339, UTC, to the second."""
OLD_ONE, THE_REST = "the old one goes on", "the rest of it is served"

__all__ = [
    "SCHEMA",
    "VERSION",
    "ApiServerStatus",
    "ClaimStatus",
    "Counts",
    "DeviceStatus",
    "DraStatus",
    "DriverStatus",
    "Failure",
    "GatewayStatus",
    "GivenStatus",
    "HolderStatus",
    "KubeletStatus",
    "LogEvent",
    "PodResourcesStatus",
    "PoolStatus",
    "RefusedReload",
    "Reloads",
    "ResourceStatus",
    "SlicesStatus",
    "Standing",
    "Status",
    "SwitchStatus",
    "Time",
    "Trouble",
    "pieces",
    "stamp",
    "stamped",
    "to_json",
    "unserved",
]


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """One id, as the kubelet sees it."""

    id: str
    device: str
    healthy: bool
    reason: str | None
    since: Time | None
    lost: bool
    held: bool
    held_since: Time | None
    holders: tuple[HolderStatus, ...]
    numa_nodes: tuple[int, ...]
    attributes: Mapping[str, str | int | float | bool]
    outdated: str | None = None
    """Why its container can't restart: the answer that the kubelet would repeat means other hardware now."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of a resource's ids, by state."""

    listed: int = 0
    healthy: int = 0
    unhealthy: int = 0
    held: int = 0
    free: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The driver of one resource."""

    name: str
    version: str | None
    listed: Time | None = field(compare=False)
    failure: str | None
    error: Failure | None
    finds: int | None = None
    """The devices of its last list."""


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One resource with its devices."""

    name: str
    started: bool
    registrations: tuple[Standing, ...]
    """One for each front that offers the resource."""
    failure: Failure | None
    driver: DriverStatus
    counts: Counts = Counts()
    devices: tuple[DeviceStatus, ...] = ()
    unsaved: str | None = None
    """Why its grants aren't written to the journal."""
    refused: Failure | None = None
    """Why the last container was refused its devices."""
    elsewhere: str | None = None
    """The other gateway that serves it."""


@dataclass(frozen=True, slots=True)
class KubeletStatus:
    """The kubelet of this node."""

    there: bool
    since: Time
    incarnation: str | None
    api: str | None
    release: str | None


@dataclass(frozen=True, slots=True)
class PodResourcesStatus:
    """The outcome of the requests to PodResources."""

    answered: Time | None = field(compare=False)
    failure: str | None


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The process."""

    version: str
    pid: int
    node: str
    since: Time


@dataclass(frozen=True, slots=True)
class RefusedReload:
    """A configuration that was refused, by a reload or at the start."""

    time: Time
    problems: tuple[str, ...]
    served: str = OLD_ONE
    """What the gateway serves instead."""


@dataclass(frozen=True, slots=True)
class Reloads:
    """The outcomes of reloads, and of the start."""

    read: Time
    succeeded: int = 0
    refused: int = 0
    refusal: RefusedReload | None = None
    kept: Time | None = None
    """When the last good configuration was kept, if the gateway started with it and still serves it."""

    def took_over(self, now: Time, problems: Iterable[str] = ()) -> Reloads:
        """``problems``: of the resources that go on as before."""
        refusal = RefusedReload(now, told, THE_REST) if (told := tuple(problems)) else None
        return Reloads(now, self.succeeded + 1, self.refused, refusal)

    def refuse(self, now: Time, problems: Iterable[str]) -> Reloads:
        return replace(self, refused=self.refused + 1, refusal=RefusedReload(now, tuple(problems)))

    def fell_back(self, problems: Iterable[str], kept: Time, *, whole: bool) -> Reloads:
        """At the start. ``whole``: whether nothing of the configuration is served."""
        served = f"the last good one, kept at {kept}, is served" if whole else THE_REST
        return replace(self, refusal=RefusedReload(self.read, tuple(problems), served), kept=kept)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One trouble, with advice if there is any."""

    level: str
    resource: str
    reason: str
    since: Time | None
    advice: str | None


@dataclass(frozen=True, slots=True)
class Status:
    """The gateway and its node at one moment."""

    schema: int
    time: Time = field(compare=False)
    gateway: GatewayStatus
    reloads: Reloads
    kubelet: KubeletStatus
    pod_resources: PodResourcesStatus
    troubles: tuple[Trouble, ...]
    resources: tuple[ResourceStatus, ...]
    events: tuple[LogEvent, ...]
    dra: DraStatus | None = None
    """The front for DRA; None if none is configured."""


def unserved(front: str) -> Standing:
    """The registration of a resource before it is served."""
    return Standing(front, "unready")


# times


def stamp(moment: float) -> Time:
    """Converts ``moment``, in seconds of the monotonic clock."""
    return timestamp(time.time() - (time.monotonic() - moment))


def stamped(moment: float | None) -> Time | None:
    return None if moment is None else stamp(moment)


# JSON


def to_json(value: object) -> str:
    """``value`` in one line of JSON."""
    return json.dumps(value, default=_plain)


def pieces(status: Status) -> Iterator[str]:
    """The JSON and its end of line, in pieces: thousands of devices at once would block the event loop."""
    before = "{"
    for name in _names(Status):
        yield f'{before}"{name}": '
        value = getattr(status, name)
        before = ", "
        if name != "resources":
            yield to_json(value)
            continue
        yield "["
        for index, one in enumerate(value):
            yield f"{', ' if index else ''}{to_json(one)}"
        yield "]"
    yield "}\n"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return {name: getattr(value, name) for name in _names(cast("Any", type(value)))}


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(one.name for one in fields(cast("Any", kind)))

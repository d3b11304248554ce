"""The values that a status is made of, and their JSON, whose names are the same.

docs/reference/status.md says what each field means.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, cast

from dpgateway.kit.log import Event

SCHEMA = 1
"""The version of the value's JSON: another one if a field changes its meaning or goes, not if one is added."""
VERSION = "0.1.0"
"""Of this package; not asked of importlib.metadata, which takes 3 MB."""
Time = str
"""RFC 3339, UTC, to the second."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is wrong, and since when."""

    reason: str
    since: Time | None


@dataclass(frozen=True, slots=True)
class Registration:
    """Where a resource stands with the kubelet."""

    state: str
    since: Time | None
    registered: bool
    streaming: bool
    listed: bool
    api: str | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """One resource, without its devices."""

    name: str
    started: bool
    registration: Registration
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a device, as far as the kubelet says it."""

    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One id, as the kubelet sees it."""

    id: str
    device: str
    healthy: bool
    reason: str | None
    since: Time | None
    lost: bool
    held: bool
    held_since: Time | None
    holders: tuple[Holder, ...]
    numa_nodes: tuple[int, ...]
    attributes: Mapping[str, str | int | float | bool]
    outdated: str | None = None
    """Why its container can't be started again: what the kubelet repeats is other hardware by now."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many ids of a resource are so."""

    listed: int = 0
    healthy: int = 0
    unhealthy: int = 0
    held: int = 0
    free: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of one resource."""

    name: str
    version: str | None
    listed: Time | None = field(compare=False)
    failure: str | None
    error: Failure | None


@dataclass(frozen=True, slots=True)
class Resource(Standing):
    """One resource, with all that is known of it."""

    driver: Driver
    counts: Counts
    devices: tuple[Device, ...]
    unsaved: str | None = None
    """Why what it gives away isn't written down."""
    refused: Failure | None = None
    """Why the last container got nothing of it."""
    elsewhere: str | None = None
    """Which other gateway serves it."""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet of this node."""

    there: bool
    since: Time
    incarnation: str | None
    api: str | None
    release: str | None


@dataclass(frozen=True, slots=True)
class PodResources:
    """What became of asking the kubelet which pods have what."""

    answered: Time | None = field(compare=False)
    failure: str | None


@dataclass(frozen=True, slots=True)
class Gateway:
    """The process."""

    version: str
    pid: int
    node: str
    since: Time


@dataclass(frozen=True, slots=True)
class Refusal:
    """A changed configuration that wasn't taken over."""

    time: Time
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reloads:
    """What became of changes of the configuration."""

    read: Time
    succeeded: int = 0
    refused: int = 0
    refusal: Refusal | None = None

    def took_over(self, now: Time) -> Reloads:
        return Reloads(now, self.succeeded + 1, self.refused)

    def refuse(self, now: Time, problems: Iterable[str]) -> Reloads:
        return replace(self, refused=self.refused + 1, refusal=Refusal(now, tuple(problems)))


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong."""

    level: str
    resource: str
    reason: str
    since: Time | None
    advice: str | None


@dataclass(frozen=True, slots=True)
class Status:
    """All of it."""

    schema: int
    time: Time = field(compare=False)
    gateway: Gateway
    reloads: Reloads
    kubelet: Kubelet
    pod_resources: PodResources
    troubles: tuple[Trouble, ...]
    resources: tuple[Resource, ...]
    events: tuple[Event, ...]


def to_json(value: object) -> str:
    """One line."""
    return json.dumps(value, default=_plain)


def pieces(status: Status) -> Iterator[str]:
    """The same, and its end of line, in pieces that are made in a moment each: thousands of devices take longer."""
    before = "{"
    for name in _names(Status):
        yield f'{before}"{name}": '
        value = getattr(status, name)
        yield from _list(value) if name == "resources" else [to_json(value)]
        before = ", "
    yield "}\n"


def _list(values: Sequence[object]) -> Iterator[str]:
    yield "["
    for index, value in enumerate(values):
        yield f"{', ' if index else ''}{to_json(value)}"
    yield "]"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return {name: getattr(value, name) for name in _names(cast("Any", type(value)))}


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(one.name for one in fields(cast("Any", kind)))

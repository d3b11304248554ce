"""What a configuration says, typed: one frozen dataclass per mapping of the file, one field per key.

A field's metadata has ``help`` (one line) and may have ``check``: a function that returns the value or raises Wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from dpgateway.config.durations import format_duration
from dpgateway.config.names import check_resource_name
from dpgateway.config.problems import Wrong, describe
from dpgateway.model import Allocation, Mount, place

Distinct = Literal["prefer", "require"]
PreferenceKind = Literal["none", "packed", "spread"]
Api = Literal["v1beta1", "v1alpha2", "v1alpha1"]

DEVICE_PLUGINS_DIR = Path("/var/lib/kubelet/device-plugins")
MOST_SHARES = 1000
LONGEST_PREFER = timedelta(seconds=1)
LONGEST_PREPARE = timedelta(seconds=28)


def check_shares(count: int) -> int:
    if not 1 <= count <= MOST_SHARES:
        raise Wrong(describe(count), f"a number of shares from 1 to {MOST_SHARES}")
    return count


def _positive(duration: timedelta) -> timedelta:
    if duration < timedelta(milliseconds=1):
        raise Wrong(format_duration(duration), "a duration of at least 1ms")
    return duration


def _prepare(duration: timedelta) -> timedelta:
    if duration > LONGEST_PREPARE:
        # KubeletPreStartContainerRPCTimeoutInSecs = 30, kubelet 1.10 to 1.37
        hint = "the kubelet waits 30s for PreStartContainer, and the answer has to reach it"
        raise Wrong(format_duration(duration), f"at most {format_duration(LONGEST_PREPARE)}", hint)
    return _positive(duration)


def _prefer(duration: timedelta) -> timedelta:
    if duration > LONGEST_PREFER:
        hint = "the kubelet admits no other pod while it waits, and can choose by itself"
        raise Wrong(format_duration(duration), f"at most {format_duration(LONGEST_PREFER)}", hint)
    return _positive(duration)


def _filled(text: str) -> str:
    if not text:
        raise Wrong('""', "the name of a driver")
    return text


def _environment(env: Mapping[str, str]) -> Mapping[str, str]:
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise Wrong(describe(name), "environment variables' names, not empty and without '='")
    _can_be_given(env, lambda: Allocation(env=env))
    return env


def _annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    _can_be_given(annotations, lambda: Allocation(annotations=annotations))
    return annotations


def _can_be_given(what: Mapping[str, str], make: Callable[[], Allocation]) -> None:
    try:
        make()
    except ValueError as error:
        raise Wrong(describe(what), "what a container can be given", str(error).partition(".")[2]) from error


def _mounts(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    seen: set[str] = set()
    for mount in mounts:
        if (where := place(mount.container_path)) in seen:
            raise Wrong(f"container_path {describe(where)} twice", "each container_path once")
        seen.add(where)
    return mounts


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise Wrong(describe(str(path)), "an absolute path")
    return path


def _apis(apis: tuple[Api, ...]) -> tuple[Api, ...]:
    if not apis or len(set(apis)) != len(apis):
        raise Wrong(f"[{', '.join(apis)}]", "one or more APIs, each once")
    return apis


def _about(text: str, check: Callable[[Any], object] | None = None) -> dict[str, object]:
    return {"help": text} | ({"check": check} if check else {})


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Shares:
    """Under how many ids each device is offered."""

    count: int = field(metadata=_about("under how many ids each device is offered", check_shares))
    distinct: Distinct = field(
        default="prefer", metadata=_about("prefer or require that a container's shares are of different devices")
    )


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each of a driver's methods may take."""

    list: timedelta = field(
        default=timedelta(seconds=10),
        metadata=_about("for devices(); then every device is Unhealthy until the answer comes", _positive),
    )
    allocate: timedelta = field(
        default=timedelta(seconds=10), metadata=_about("for allocate(), with all attempts after Busy", _positive)
    )
    prefer: timedelta = field(
        default=timedelta(seconds=1), metadata=_about("for prefer(); at most 1s, then the kubelet chooses", _prefer)
    )
    prepare: timedelta = field(
        default=timedelta(seconds=25), metadata=_about("for prepare(); at most 28s, as the kubelet waits 30s", _prepare)
    )


@dataclass(frozen=True, slots=True)
class Resource:
    """One entry of ``resources``. Its ``options`` are as the file has them: the driver's types aren't known yet."""

    name: str = field(metadata=_about("the extended resource", check_resource_name))
    driver: str = field(metadata=_about("the driver's name, as `dpgateway drivers` lists it", _filled))
    options: Any = field(default_factory=_nothing, metadata=_about("the driver's own options"))
    nodes: tuple[str, ...] = field(
        default=("*",), metadata=_about("only on nodes whose name matches one of these patterns")
    )
    shares: Shares = field(default=Shares(1), metadata=_about("under how many ids each device is offered"))
    preference: PreferenceKind = field(default="none", metadata=_about("which devices the kubelet is advised to take"))
    keep_lost: timedelta = field(
        default=timedelta(minutes=10), metadata=_about("how long a vanished device that nobody holds stays listed")
    )
    refresh: timedelta = field(
        default=timedelta(seconds=30),
        metadata=_about("how often the driver is asked anew although it announced no change", _positive),
    )
    env: Mapping[str, str] = field(
        default_factory=_nothing, metadata=_about("environment of every container that gets a device", _environment)
    )
    annotations: Mapping[str, str] = field(
        default_factory=_nothing, metadata=_about("annotations for the container runtime", _annotations)
    )
    mounts: tuple[Mount, ...] = field(
        default=(), metadata=_about("host files and directories that every such container gets", _mounts)
    )
    timeouts: Timeouts = field(default=Timeouts(), metadata=_about("how long each of the driver's methods may take"))


@dataclass(frozen=True, slots=True)
class ResourceConfig(Resource):
    """A resource that is ready to be served: ``options`` is the driver's own Options."""

    where: str = ""
    """``file:line`` of the entry."""
    failure: str | None = None
    """Why the driver can't be used; ``options`` is then None."""
    driver_class: Any = None
    """The driver itself; None if it can't be used."""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The mapping ``kubelet``: what is needed to find it, and to talk with it."""

    device_plugins_dir: Path = field(
        default=DEVICE_PLUGINS_DIR, metadata=_about("the kubelet's device-plugins directory", _absolute)
    )
    apis: tuple[Api, ...] = field(
        default=("v1beta1", "v1alpha2", "v1alpha1"),
        metadata=_about("the device-plugin APIs to offer, for diagnosis only", _apis),
    )

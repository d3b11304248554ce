"""What a configuration says, typed: one frozen dataclass per mapping of the file, one field per key.

A field's metadata has ``help``, one line. It may have ``expand``, which gets the value as the file has it and returns
its long form (both as :class:`Written`), and ``check``, which gets the typed value and returns it. Both raise Wrong.
With ``single`` a list's only item may stand without the list.
"""

# ruff: noqa: RUF009  what _key makes is a field, and a Place is frozen

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from dpgateway.config.problems import Place, Wrong, shown
from dpgateway.config.spelling import check_resource_name, format_duration, parse_listen
from dpgateway.config.written import Written
from dpgateway.model import Allocation, Mount, place

Distinct = Literal["prefer", "require"]
PreferenceKind = Literal["none", "packed", "spread"]
CdiKind = Literal["auto", "always", "never"]
ApiName = Literal["v1beta1", "v1alpha2", "v1alpha1"]

DEVICE_PLUGINS_DIR = Path("/var/lib/kubelet/device-plugins")
STATE_DIR = Path("/var/lib/dpgateway")
CDI_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The specification's own, and the defaults of the runtimes."""
MOST_SHARES = 1000

SHARE_FIELD = re.compile(r"\{(id|share)\}|\{sha1:((?:\{(?:id|share)\}|[^{}])*)\}")
"""What a share's id is made of."""
GRANTED_FIELD = re.compile(r"\{(granted|shares)\}|\{part:([0-9]{1,15})\}")
"""What the environment can say of the shares that a container gets."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SECOND = timedelta(seconds=1)


def _check_shares(count: int) -> int:
    if not 1 <= count <= MOST_SHARES:
        raise Wrong(shown(count), f"a number of shares from 1 to {MOST_SHARES}")
    return count


def _expand_shares(shares: Written) -> Written:
    if type(shares.value) is int:
        return Written({"count": shares}, shares.place)
    if not isinstance(shares.value, dict):
        raise Wrong(shares.shown, "an integer, or a mapping with the keys count, distinct, ids, env")
    return shares


def _check_share_ids(form: str | None) -> str | None:
    if form is not None and ("{share}" not in form or set("{}") & set(SHARE_FIELD.sub("", form))):
        raise Wrong(shown(form), "a text with {share}, and perhaps {id} or {sha1:...}, as in {id}-{share}")
    return form


def _check_granted(env: Mapping[str, str]) -> Mapping[str, str]:
    for text in env.values():
        if set("{}") & set(GRANTED_FIELD.sub("", text)):
            raise Wrong(shown(text), "texts with {granted}, {shares} or {part:100} and no other braces")
    return _environment(env)


def _positive(duration: timedelta) -> timedelta:
    if duration < timedelta(milliseconds=1):
        raise Wrong(format_duration(duration), "a duration of at least 1ms")
    return duration


def _at_most(seconds: int, why: str) -> Callable[[timedelta], timedelta]:
    def check(duration: timedelta) -> timedelta:
        if duration > seconds * _SECOND:
            raise Wrong(format_duration(duration), f"at most {seconds}s", why)
        return _positive(duration)

    return check


_prefer = _at_most(1, "the kubelet admits no other pod while it waits, and can choose by itself")
# KubeletPreStartContainerRPCTimeoutInSecs = 30, kubelet 1.10 to 1.37
_prepare = _at_most(28, "the kubelet waits 30s for PreStartContainer, and the answer has to reach it")


def _filled(text: str) -> str:
    if not text:
        raise Wrong('""', "the name of a driver")
    return text


def _pool(name: str | None) -> str | None:
    if name == "":
        raise Wrong('""', "the name of a pool, or null")
    return name


def _environment(env: Mapping[str, str]) -> Mapping[str, str]:
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise Wrong(shown(name), "environment variables' names, not empty and without '='")
    return _given("env", env)


def _annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    return _given("annotations", annotations)


def _given(field: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    try:
        Allocation(**{field: texts})  # type: ignore[arg-type]
    except ValueError as error:
        raise Wrong(shown(texts), "what a container can be given", str(error).partition(".")[2]) from error
    return texts


def _mounts(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    seen: set[str] = set()
    for mount in mounts:
        if (path := place(mount.container_path)) in seen:
            raise Wrong(f"container_path {shown(path)} twice", "each container_path once")
        seen.add(path)
    return mounts


def absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise Wrong(shown(str(path)), "an absolute path")
    return path


def _directories(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    if not paths or len(set(paths)) != len(paths):
        raise Wrong(shown([str(path) for path in paths]), "one or more directories, each once")
    return tuple(map(absolute, paths))


def _socket(path: Path | None) -> Path | None:
    return path and absolute(path)


def _listen(listen: str | None) -> str | None:
    if listen is not None:
        parse_listen(listen)
    return listen


def _apis(apis: tuple[ApiName, ...]) -> tuple[ApiName, ...]:
    if not apis or len(set(apis)) != len(apis):
        raise Wrong(f"[{', '.join(apis)}]", "one or more APIs, each once")
    return apis


def _about(text: str, check: Callable[[Any], object] | None = None) -> dict[str, object]:
    return {"help": text} | ({"check": check} if check else {})


def _key(default: object, text: str, check: Callable[[Any], object] | None = None) -> Any:  # noqa: ANN401
    """A field that can be left out of the file."""
    if default is _NOTHING:  # dataclasses refuse it as a default, because it has no hash
        return field(default_factory=lambda: _NOTHING, metadata=_about(text, check))
    return field(default=default, metadata=_about(text, check))


@dataclass(frozen=True, slots=True)
class Shares:
    """Under how many ids each device is offered."""

    count: int = field(metadata=_about("under how many ids each device is offered", _check_shares))
    distinct: Distinct = _key("prefer", "prefer or require that a container's shares are of different devices")
    ids: str | None = _key(None, "the ids of shares: {id}-{share}; else <id>, <id>::1, ...", _check_share_ids)
    env: Mapping[str, str] = _key(
        _NOTHING, "environment by the number of shares: {granted}, {shares}, {part:100}", _check_granted
    )


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each of a driver's methods may take."""

    list: timedelta = _key(
        10 * _SECOND, "for devices(); then every device is Unhealthy until the answer comes", _positive
    )
    allocate: timedelta = _key(10 * _SECOND, "for allocate(), with all attempts after Busy", _positive)
    prefer: timedelta = _key(_SECOND, "for prefer(); at most 1s, then the kubelet chooses", _prefer)
    prepare: timedelta = _key(25 * _SECOND, "for prepare(); at most 28s, as the kubelet waits 30s", _prepare)


@dataclass(frozen=True, slots=True)
class ResourceKeys:
    """One entry of ``resources``. Its ``options`` are as the file has them: the driver's types aren't known yet."""

    unknown_key: ClassVar = "the driver's own keys belong under options"
    """The hint for an unknown key."""

    name: str = field(metadata=_about("the extended resource", check_resource_name))
    driver: str = field(metadata=_about("the driver's name, as `dpgateway drivers` lists it", _filled))
    options: Any = _key(_NOTHING, "the driver's own options")
    nodes: tuple[str, ...] = _key(("*",), "only on nodes whose name matches one of these patterns")
    shares: Shares = field(
        default=Shares(1), metadata=_about("under how many ids each device is offered") | {"expand": _expand_shares}
    )
    preference: PreferenceKind = _key("none", "which devices the kubelet is advised to take")
    cdi: CdiKind = _key("auto", "whether what containers get has CDI names; never: what the names stand for")
    pool: str | None = _key(None, "resources of one pool may be the same hardware, and exclude each other", _pool)
    keep_lost: timedelta = _key(timedelta(minutes=10), "how long a vanished device that nobody holds stays listed")
    refresh: timedelta = _key(
        30 * _SECOND, "how often the driver is asked again although it announced no change", _positive
    )
    env: Mapping[str, str] = _key(_NOTHING, "environment of every container that gets a device", _environment)
    annotations: Mapping[str, str] = _key(_NOTHING, "annotations for the container runtime", _annotations)
    mounts: tuple[Mount, ...] = _key((), "host files and directories that every such container gets", _mounts)
    timeouts: Timeouts = _key(Timeouts(), "how long each of the driver's methods may take")


@dataclass(frozen=True, slots=True)
class ResourceConfig(ResourceKeys):
    """A resource that is ready to be served: ``options`` is the driver's own Options."""

    where: Place = field(default=Place(""), compare=False)
    """Where the file has it."""
    written: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the file has there, as plain values, with the defaults of the file filled in."""
    failure: str | None = None
    """Why the driver can't be used; ``options`` is then None."""
    driver_class: Any = None
    """The driver itself; None if it can't be used."""
    driver_version: str = field(default="", compare=False)
    """Of the distribution that has it."""
    later: Future[ResourceConfig] | None = field(default=None, compare=False)
    """While the driver is still being loaded, or still checks its options: gets the resource once that is done."""

    def by_now(self) -> ResourceConfig:
        """What came later, if it has come."""
        if self.later is None or not self.later.done() or self.later.exception() is not None:
            return self
        return self.later.result()


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The mapping ``kubelet``: what is needed to find it, and to talk with it."""

    device_plugins_dir: Path = _key(DEVICE_PLUGINS_DIR, "the kubelet's device-plugins directory", absolute)
    apis: tuple[ApiName, ...] = _key(
        ("v1beta1", "v1alpha2", "v1alpha1"), "the device-plugin APIs to offer, for diagnosis only", _apis
    )
    pod_resources_socket: Path | None = _key(
        None,
        "the kubelet's PodResources socket; else pod-resources/kubelet.sock beside that directory",
        _socket,
    )


@dataclass(frozen=True, slots=True)
class Runtime:
    """The mapping ``runtime``: what is needed of the container runtime."""

    socket: Path | None = _key(None, "its CRI socket, to ask who it is; else the only one in a usual place", _socket)
    cdi_dirs: tuple[Path, ...] = _key(CDI_DIRS, "where CDI specs are; the last wins, and gets our own", _directories)


@dataclass(frozen=True, slots=True)
class Web:
    """The mapping ``web``: the pages that say how the gateway is."""

    listen: str | None = _key(None, "the address and the port of the pages; without it there are none", _listen)

    @property
    def address(self) -> tuple[IPv4Address | IPv6Address, int] | None:
        """What ``listen`` spells; None if there are to be no pages."""
        return None if self.listen is None else parse_listen(self.listen)


NO_WEB = Web()
"""No pages."""

"""The typed configuration: one frozen dataclass per mapping of the file, one field per key.

docs/reference/configuration.md describes each key, which a test checks. A field's metadata may have

check   a function from the typed value to itself; not called for None; may raise Wrong
expand  a function from the value as written to its long form, both :class:`Written`; may raise Wrong
single  true: the only item of a list may be written without the list
hint    a hint in the error about a missing key without a default
"""

# ruff: noqa: RUF009  what checked makes is a field

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

from dpgateway.config import checks
from dpgateway.config.problems import NOWHERE, Place, Wrong
from dpgateway.config.source import Written
from dpgateway.config.spelling import check_resource_name, parse_listen
from dpgateway.model import Mount

Distinct = Literal["prefer", "require"]
PreferenceKind = Literal["none", "packed", "spread"]
MetricsKind = Literal["brief", "full"]
CdiKind = Literal["auto", "always", "never"]
FrontKind = Literal["deviceplugin", "dra", "auto"]
ApiName = Literal["v1beta1", "v1alpha2", "v1alpha1"]
API_NAMES: tuple[ApiName, ...] = get_args(ApiName)
"""The versions of the device-plugin API, newest first: each is a module of deviceplugin/api."""

DEVICE_PLUGINS_DIR = Path("/var/lib/kubelet/device-plugins")
STATE_DIR = Path("/var/lib/dpgateway")
CDI_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The directories of the specification, and the runtimes' defaults."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SECOND = timedelta(seconds=1)


def _checked(check: checks.Check[Any], default: Any = MISSING) -> Any:  # noqa: ANN401
    """A field with a ``check``."""
    return field(default=default, metadata={"check": check})


def _checked_mapping(check: checks.Check[Any]) -> Any:  # noqa: ANN401
    """The same for a mapping, by default empty. Dataclasses refuse a default without a hash."""
    return field(default_factory=lambda: _NOTHING, metadata={"check": check})


def _shares_in_full(shares: Written) -> Written:
    if type(shares.value) is int:
        return Written({"count": shares}, shares.place)
    if not isinstance(shares.value, dict):
        raise Wrong(shares.shown, "an integer, or a mapping with the keys count, distinct, ids, env")
    return shares


@dataclass(frozen=True, slots=True)
class Shares:
    """The ids under which each device is offered."""

    count: int = _checked(checks.share_count)
    distinct: Distinct = "prefer"
    ids: str | None = _checked(checks.share_ids, None)
    env: Mapping[str, str] = _checked_mapping(checks.granted_environment)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The deadlines of a driver's methods."""

    list: timedelta = _checked(checks.positive, 10 * _SECOND)
    allocate: timedelta = _checked(checks.positive, 10 * _SECOND)
    prefer: timedelta = _checked(checks.prefer_timeout, _SECOND)
    prepare: timedelta = _checked(checks.prepare_timeout, 25 * _SECOND)


@dataclass(frozen=True, slots=True)
class ResourceKeys:
    """One entry of ``resources``. ``options`` are untyped: their types are the driver's."""

    unknown_key: ClassVar = "the driver's own keys belong under options"
    """The hint for an unknown key."""

    name: str = _checked(check_resource_name)
    driver: str = _checked(checks.driver_name)
    options: Any = field(default_factory=lambda: _NOTHING)
    nodes: tuple[str, ...] = ("*",)
    front: FrontKind = "deviceplugin"
    shares: Shares = field(default=Shares(1), metadata={"expand": _shares_in_full})
    preference: PreferenceKind = "none"
    cdi: CdiKind = "auto"
    pool: str | None = _checked(checks.pool_name, None)
    keep_lost: timedelta = timedelta(minutes=10)
    refresh: timedelta = _checked(checks.positive, 30 * _SECOND)
    env: Mapping[str, str] = _checked_mapping(checks.environment)
    annotations: Mapping[str, str] = _checked_mapping(checks.runtime_annotations)
    mounts: tuple[Mount, ...] = _checked(checks.mounts, ())
    timeouts: Timeouts = Timeouts()

    @property
    def on_dra(self) -> bool:
        """Whether it is offered by DRA, or may be."""
        return self.front in {"dra", "auto"}


@dataclass(frozen=True, slots=True)
class ResourceConfig(ResourceKeys):
    """A resource with its driver: ``options`` is an object of the driver's Options."""

    where: Place = field(default=NOWHERE, compare=False)
    """Its place in the file."""
    written: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry in plain values, with the file's defaults filled in."""
    failure: str | None = None
    """Why the driver can't be used; ``options`` is then None."""
    driver_class: Any = None
    """None if it can't be used."""
    driver_version: str = field(default="", compare=False)
    """Of its distribution."""
    chosen: str = field(default="deviceplugin", compare=False)
    """The front that offers a resource with ``front: auto`` now (switching/)."""
    load: Callable[[], ResourceConfig] | None = field(default=None, compare=False, repr=False)
    """Set if the driver wasn't imported, or hadn't checked its options, in time. It waits for that and returns the
    resource with its driver. It blocks, forever if the driver hangs; callable from any thread.
    """

    @property
    def on(self) -> str:
        """The front that offers it."""
        return self.chosen if self.front == "auto" else self.front

    def loaded(self, other: ResourceConfig) -> ResourceConfig:
        """This resource with the driver and the options of ``other``."""
        return replace(
            self,
            options=other.options,
            failure=other.failure,
            driver_class=other.driver_class,
            driver_version=other.driver_version,
            load=other.load,
        )


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The mapping ``kubelet``: its paths and APIs."""

    device_plugins_dir: Path = _checked(checks.absolute, DEVICE_PLUGINS_DIR)
    apis: tuple[ApiName, ...] = _checked(checks.apis, API_NAMES)
    pod_resources_socket: Path | None = _checked(checks.absolute, None)
    root_dir: Path | None = _checked(checks.absolute, None)

    @property
    def root(self) -> Path:
        """The kubelet's root directory: by default the parent of ``device_plugins_dir``."""
        return self.root_dir or self.device_plugins_dir.parent


@dataclass(frozen=True, slots=True)
class DraSettings:
    """The mapping ``dra``: this node's DRA driver."""

    driver: str | None = _checked(checks.dra_driver, None)
    withdraw: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The mapping ``cluster``: the API server, and the gateway's writes to it."""

    server: str | None = _checked(checks.https, None)
    ca: Path | None = _checked(checks.absolute, None)
    token: Path | None = _checked(checks.absolute, None)
    events: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The mapping ``runtime``: the container runtime."""

    socket: Path | None = _checked(checks.absolute, None)
    cdi_dirs: tuple[Path, ...] = _checked(checks.directories, CDI_DIRS)


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The mapping ``web``: status pages and metrics."""

    listen: str | None = _checked(checks.listen, None)
    metrics: MetricsKind = "brief"

    @property
    def address(self) -> tuple[IPv4Address | IPv6Address, int] | None:
        """``listen``, parsed; None: no pages."""
        return None if self.listen is None else parse_listen(self.listen)


@dataclass(frozen=True, slots=True)
class File:
    """The keys of one file."""

    resources: tuple[Any, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    kubelet: KubeletSettings = KubeletSettings()
    state_dir: Path = _checked(checks.absolute, STATE_DIR)
    runtime: RuntimeSettings = RuntimeSettings()
    web: WebSettings = WebSettings()
    dra: DraSettings = DraSettings()
    cluster: ClusterSettings = ClusterSettings()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of one node."""

    resources: tuple[ResourceConfig, ...]
    kubelet: KubeletSettings
    state_dir: Path = STATE_DIR
    web: WebSettings = WebSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    dra: DraSettings = DraSettings()
    cluster: ClusterSettings = ClusterSettings()

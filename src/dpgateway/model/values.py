"""The values of the model, and differences between lists of them.

Each value validates itself in its constructor, so an invalid value can't exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import compress
from operator import attrgetter, is_not, ne
from types import MappingProxyType
from typing import Any, TypeVar

from dpgateway.errors import LONGEST_WORDS, legible
from dpgateway.model import checks

K = TypeVar("K")
V = TypeVar("V")

_ABSENT = object()
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _set(target: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(target, name, value)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a device can be given to a container. Made by :meth:`healthy` or :meth:`unhealthy`."""

    reason: str | None = None
    """Why the device is unhealthy; ``None`` when it is healthy. The log and ``dpgateway devices`` show the reason; the
    kubelet gets it by DRA only."""

    def __post_init__(self) -> None:
        if self.reason is not None:
            _set(self, reason=checks.text("the reason of Health.unhealthy", self.reason))

    @property
    def ok(self) -> bool:
        return self.reason is None

    @classmethod
    def healthy(cls) -> Health:
        return HEALTHY

    @classmethod
    def unhealthy(cls, reason: str) -> Health:
        """``reason``: the fault, for an operator who asks why the device isn't allocatable. Characters that can't be
        sent, such as lone surrogates from a file name, are escaped, and of a long text 4,000 characters are kept.
        """
        if isinstance(reason, str) and not (reason.isascii() and reason.isprintable() and len(reason) <= LONGEST_WORDS):
            reason = legible(reason)
        return cls(reason if reason is not None else checks.text("the reason of Health.unhealthy", reason))


HEALTHY = Health()


@dataclass(frozen=True, slots=True)
class Device:
    """One thing a driver manages."""

    id: str
    """Stable for ever: from identity (serial, bus address, configured name), never from enumeration order."""
    health: Health = HEALTHY
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes that the device is near; empty when it has none or when they aren't known. Never -1."""
    attributes: Mapping[str, str | int | float | bool] = field(
        default_factory=lambda: _NOTHING, hash=False, kw_only=True
    )
    """Properties of the device, such as its vendor, serial number or firmware, by name: for people."""
    hardware: tuple[str, ...] | None = field(default=None, kw_only=True)
    """The names of the hardware behind the device, such as ``char 188:0`` or ``pci 0000:3b:00.0``; None: its own id
    alone. Devices that share a name exclude each other: while a container has one of them, the gateway grants no other,
    even if their ids change. None for an Unhealthy device: the names are unknown, unless an earlier list had them."""
    joint: bool = field(default=False, kw_only=True)
    """Whether one container may get the device together with other joint devices of the same hardware, in one request:
    PCI functions of an IOMMU group, which the kernel gives to one process. Other containers get none of them then."""

    def __post_init__(self) -> None:
        # Most devices have the defaults, which need no check.
        if (id_ := checks.device_id("device id", self.id)) is not self.id:
            _set(self, id=id_)
        if type(self.health) is not Health:
            if not isinstance(self.health, Health):
                raise TypeError(f"device {self.id!r}: expected health to be a Health, found {self.health!r}")
            _set(self, health=checks.plain(self.health, Health))
        if self.numa_nodes != ():
            _set(self, numa_nodes=checks.nodes(f"device {self.id!r}: numa_nodes", self.numa_nodes))
        if self.attributes is not _NOTHING:
            _set(self, attributes=checks.attributes(f"device {self.id!r}: attributes", self.attributes))
        if self.joint is not False and self.joint is not True:
            raise TypeError(f"device {self.id!r}: expected joint to be true or false, found {self.joint!r}")
        if self.hardware is not None:
            _set(self, hardware=checks.names(f"device {self.id!r}: hardware", self.hardware))


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that a driver examined in search of devices, and the result: its device, or the first failed test."""

    name: str
    """For people: ``tty ttyUSB0``, ``/dev/ttyUSB0``."""
    path: str = ""
    """Its path, unless that is its name."""
    device: str | None = field(default=None, kw_only=True)
    """The id of its device, which may have other parts."""
    test: str | None = field(default=None, kw_only=True)
    """The key of the first failed test, as in the configuration: ``match.attr.vendor``."""
    found: str = field(default="", kw_only=True)
    expected: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if (self.device is None) == (self.test is None):
            raise ValueError(f"candidate {self.name!r}: expected the device that it is, or the test that it failed")
        for name in ("name", "path", "found", "expected"):  # names in sysfs needn't be UTF-8
            said = getattr(self, name)
            text = legible(said) if isinstance(said, str) else said
            _set(self, **{name: checks.text(f"Candidate.{name}", text, empty=name != "name")})


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node of the host that a container gets."""

    host_path: str
    """Absolute. May be a symbolic link: the container runtime resolves it when it creates the container."""
    container_path: str | None = None
    """Absolute; ``None``: the same path as on the host."""
    permissions: str = "rw"
    """A non-empty subset of ``rwm``: read, write, mknod."""

    def __post_init__(self) -> None:
        _set(self, host_path=checks.path("DeviceNode.host_path", self.host_path))
        container_path = self.host_path if self.container_path is None else self.container_path
        _set(self, container_path=checks.path("DeviceNode.container_path", container_path))
        permissions = checks.text("DeviceNode.permissions", self.permissions)
        if not set(permissions) <= set("rwm") or len(set(permissions)) != len(permissions):
            raise ValueError(f"DeviceNode.permissions: expected a non-empty subset of 'rwm', found {permissions!r}")
        _set(self, permissions=permissions)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host that is mounted into a container."""

    host_path: str
    container_path: str
    read_only: bool = True

    def __post_init__(self) -> None:
        _set(self, host_path=checks.path("Mount.host_path", self.host_path))
        _set(self, container_path=checks.path("Mount.container_path", self.container_path))
        if not isinstance(self.read_only, bool):
            raise TypeError(f"Mount.read_only: expected true or false, found {self.read_only!r}")


@dataclass(frozen=True, slots=True)
class Allocation:
    """The environment, device nodes, mounts etc. that a container gets with its devices."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """For the container runtime; lost on kubelets before 1.10."""
    cdi_devices: tuple[str, ...] = ()
    """Fully qualified CDI device names, ``vendor.example/class=name``, of specs on the node. For a kubelet without CDI
    they are expanded."""

    def __post_init__(self) -> None:
        env = checks.texts("Allocation.env", self.env)
        # A process gets its environment as NAME=value (execve(2)).
        for name in env:
            if "=" in name:
                raise ValueError(f"Allocation.env: the name {name!r} contains '='")
        nodes = checks.sequence("Allocation.device_nodes", self.device_nodes, DeviceNode)
        mounts = checks.sequence("Allocation.mounts", self.mounts, Mount)
        # Of two mounts at one place, one hides the other.
        seen: set[str] = set()
        for one in (*nodes, *mounts):
            if (where := checks.place(one.container_path)) in seen:
                raise ValueError(f"Allocation: the container path {one.container_path!r} is used twice")
            seen.add(where)
        names = checks.sequence("Allocation.cdi_devices", self.cdi_devices, str)
        for name in names:
            if not re.fullmatch(r"[^/=\s]+/[^/=\s]+=[^/=\s]+", name):
                raise ValueError(f"Allocation.cdi_devices: expected vendor.example/class=name, found {name!r}")
        _set(
            self,
            env=env,
            device_nodes=nodes,
            mounts=mounts,
            annotations=checks.texts("Allocation.annotations", self.annotations),
            cdi_devices=tuple(dict.fromkeys(names)),
        )


def hardware(device: Device) -> frozenset[str]:
    """The names of a device's hardware; by default its own id.

    Empty for an Unhealthy device without names: the driver may be unable to read them.
    """
    if device.hardware is None:
        return frozenset([device.id]) if device.health.ok else frozenset()
    return frozenset(device.hardware)


# Two lists differ in few devices of thousands. Values are frozen, so an identical object hasn't changed, and the loops
# over the whole list run in C.

_FIELDS: Any = attrgetter(*(one.name for one in fields(Device)))


def replaced(before: Sequence[V], now: Sequence[V]) -> list[tuple[V, V]] | None:
    """The old and the new object at each place where they differ; None if the lists have different lengths."""
    if len(before) != len(now):
        return None
    return list(compress(zip(before, now, strict=True), map(is_not, before, now)))


def other_values(before: Iterable[Device], now: Iterable[Device]) -> Iterable[bool]:
    """Whether two devices have different values, pair by pair. Tuples are made and compared in C."""
    return map(ne, map(_FIELDS, before), map(_FIELDS, now))


def changed(before: Mapping[K, V], now: Mapping[K, V]) -> list[K]:
    """The keys of ``now`` that are new, or have another object."""
    if list(before) == list(now):  # the usual case, and several times faster
        return list(compress(now, map(is_not, before.values(), now.values())))
    return [key for key, value in now.items() if before.get(key, _ABSENT) is not value]

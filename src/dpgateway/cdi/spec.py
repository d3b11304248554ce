"""One CDI spec, typed and validated. Pure.

The fields have the specification's own names. As in the runtimes, an unknown field is an error (ParseSpec,
pkg/cdi/spec.go), and so is a field newer than the spec's declared version (specs-go/version.go).
"""

# ruff: noqa: N815  the fields have the specification's names

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dpgateway.config.problems import InvalidConfiguration, Place, Problem
from dpgateway.config.source import Written, unplaced
from dpgateway.config.strict import typed
from dpgateway.errors import CdiError, refuse

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""The released versions, oldest first."""
MOST_VALUES = 50_000
"""Values of a spec in JSON, including keys; YAML has a limit of its own. Each takes some 10 us to check."""
MOST_NAMED = 10
"""Most faults that an error names."""
HOOKS = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})

_VENDOR_OR_CLASS = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", re.ASCII)
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SpecNode:
    """A device node in the container. As in Go, 0 and an empty text are unset."""

    path: str
    hostPath: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    fileMode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None

    def __post_init__(self) -> None:
        wrong = []
        if not self.path:
            wrong.append("path: expected a path")
        if self.type not in {"", "b", "c", "u", "p"}:
            wrong.append(f"type: expected b, c, u or p, found {self.type!r}")
        if self.permissions != "none" and not set(self.permissions) <= set("rwm"):
            wrong.append(f"permissions: expected some of rwm, or none, found {self.permissions!r}")
        refuse(wrong)


@dataclass(frozen=True, slots=True)
class SpecMount:
    """A mount in the container: a file or directory of the host, or a separate file system."""

    hostPath: str
    containerPath: str
    options: tuple[str, ...] = ()
    type: str = ""

    def __post_init__(self) -> None:
        refuse(f"{key}: expected a path" for key in ("hostPath", "containerPath") if not getattr(self, key))


@dataclass(frozen=True, slots=True)
class Hook:
    """A program run by the runtime at a point of the container's life."""

    hookName: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None

    def __post_init__(self) -> None:
        if self.hookName not in HOOKS:
            raise ValueError(f"hookName: expected one of {', '.join(sorted(HOOKS))}, found {self.hookName!r}")
        if not self.path:
            raise ValueError("path: expected a path")


@dataclass(frozen=True, slots=True)
class IntelRdt:
    """Shares of caches and of memory bandwidth."""

    closID: str = ""
    l3CacheSchema: str = ""
    memBwSchema: str = ""
    schemata: tuple[str, ...] = ()
    enableMonitoring: bool = False
    enableCMT: bool = False
    """Until 1.0.0; enableMBM, too."""
    enableMBM: bool = False


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface that moves into the container."""

    hostInterfaceName: str
    name: str


@dataclass(frozen=True, slots=True)
class Edits:
    """The changes to a container."""

    env: tuple[str, ...] = ()
    deviceNodes: tuple[SpecNode, ...] = ()
    netDevices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[SpecMount, ...] = ()
    intelRdt: IntelRdt | None = None
    additionalGids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        refuse(f"env: expected NAME=value, found {one!r}" for one in self.env if one.find("=") < 1)

    def newest(self) -> Iterator[str]:
        """The versions that introduced the fields in use."""
        rdt = self.intelRdt
        if self.netDevices or (rdt and (rdt.schemata or rdt.enableMonitoring)):
            yield "1.1.0"
        if rdt or self.additionalGids:
            yield "0.7.0"
        if any(node.hostPath for node in self.deviceNodes):
            yield "0.5.0"
        if any(mount.type for mount in self.mounts):
            yield "0.4.0"


@dataclass(frozen=True, slots=True)
class SpecDevice:
    """One device of a spec."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    containerEdits: Edits = Edits()

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.name):
            raise ValueError(f"name: expected letters, digits, and within them '_.:-', found {self.name!r}")


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole file."""

    cdiVersion: str
    kind: str
    devices: tuple[SpecDevice, ...]
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    containerEdits: Edits = Edits()

    def __post_init__(self) -> None:
        wrong = []
        vendor, _, class_ = self.kind.partition("/")
        if not (_VENDOR_OR_CLASS.fullmatch(vendor) and _VENDOR_OR_CLASS.fullmatch(class_)):
            wrong.append(f"kind: expected vendor.example/class, found {self.kind!r}")
        names = [device.name for device in self.devices]
        if not names:
            wrong.append("devices: expected at least one")
        if len(set(names)) < len(names):
            twice = min(name for name, count in Counter(names).items() if count > 1)
            wrong.append(f"devices: expected each name once, found {twice!r} twice")
        version = self.cdiVersion.removeprefix("v")
        if version not in VERSIONS:
            wrong.append(f"cdiVersion: expected one of {', '.join(VERSIONS)}, found {self.cdiVersion!r}")
        elif VERSIONS.index(version) < VERSIONS.index(needed := self.needed_version()):
            why = f"expected at least {needed}, because it uses fields of that version"
            wrong.append(f"cdiVersion: {why}, found {version!r}")
        refuse(wrong)

    def needed_version(self) -> str:
        """The oldest version that supports all fields in use."""
        found = ["0.1.0", *self.containerEdits.newest()]
        if self.annotations or "." in self.kind.partition("/")[2]:
            found.append("0.6.0")
        for device in self.devices:
            found += device.containerEdits.newest()
            if device.name[0].isdecimal():
                found.append("0.5.0")
            if device.annotations:
                found.append("0.6.0")
        return max(found, key=VERSIONS.index)


def read(text: str, file: str) -> Spec:
    """Parses a spec in JSON or YAML. Raises CdiError, which names ``file`` and the first faults."""
    problems: list[Problem] = []
    # JSON comes first, because a JSON parser is much faster than YAML's.
    written: Written | None
    try:
        document = json.loads(text)
        if _values(document) > MOST_VALUES:
            raise CdiError(f"{file}: expected at most {MOST_VALUES} values, including keys")
        written = unplaced(document, Place(file))
    except (ValueError, RecursionError):
        from dpgateway.config.parsing import parse  # noqa: PLC0415  takes 2 MB, and most specs are JSON

        try:
            written = parse(text, file)
        except InvalidConfiguration as error:
            raise CdiError(str(error)) from error
    spec = typed(written, Spec, problems) if written and written.value is not None else None
    if spec is None:
        more = [f"and {len(problems) - MOST_NAMED} more"] if len(problems) > MOST_NAMED else []
        raise CdiError("; ".join([*map(str, problems[:MOST_NAMED]), *more]) or f"{file}: an empty file")
    return spec


def _values(value: object) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_values, value.values()))
    return 1 + (sum(map(_values, value)) if isinstance(value, list) else 0)

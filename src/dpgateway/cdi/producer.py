"""Produces the gateway's own specs: one for each allocation, with one device. Pure.

The name is a hash of what was granted, so that the same devices with the same allocation share a spec. A device node of
the host is looked up each time that the text is produced, because a link may lead to another node by then.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpgateway.cdi import spec
from dpgateway.cdi.expansion import HostNode
from dpgateway.config.strict import from_plain
from dpgateway.errors import CdiError
from dpgateway.model import Allocation, DeviceNode, Mount

VERSION = 1
"""Of what :meth:`Granted.to_json` writes."""
VENDOR = "dpgateway"
"""A vendor's name begins with a letter, and a resource's may begin with a digit."""
OLDEST = "0.3.0"
"""Runtimes take nothing older (vEarliest, specs-go/version.go)."""
OWN = re.compile(r"dpgateway-[0-9a-f]{32}\.json")
"""Their files. No driver knows these names, so they are never resolved."""

OWN_NAME = re.compile(r"dpgateway\.[^/=]+/[^/=]+=d([0-9a-f]{32})")
"""The names of their devices."""

Real = Callable[[str], tuple[str, HostNode | None]]
"""A path of the host with all links followed, and the file there; None if there is none."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What an Allocate granted, as far as a spec can express it."""

    directory: str
    """The spec's."""
    device_plugins_dir: str
    """Of the kubelet that asked."""
    resource: str
    ids: tuple[str, ...]
    """As the kubelet knows them."""
    env: Mapping[str, str]
    device_nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]

    @property
    def key(self) -> str:
        """128 bits of a hash of all fields."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @property
    def file(self) -> str:
        return f"dpgateway-{self.key}.json"

    @property
    def name(self) -> str:
        """The CDI device. A name that begins with a digit would need a newer specification."""
        return f"{kind(self.resource)}=d{self.key}"

    def to_json(self) -> str:
        said = {"version": VERSION, **{key: getattr(self, key) for key in self.__slots__}, "env": dict(self.env)}
        return json.dumps(said, default=asdict, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Record:
    """One spec: what was granted under its name, and what it says now, because hardware may move to other paths."""

    given: Granted
    now: Granted | None
    """None while the hardware is away: there is no spec then, so that no container starts with another device."""

    def to_json(self) -> str:
        if self.now == self.given:
            return self.given.to_json()
        now = self.now and {**sayable(self.now), "env": dict(self.now.env)}
        return json.dumps({**json.loads(self.given.to_json()), "now": now}, default=asdict, sort_keys=True)


def recorded(text: str, file: str) -> Record:
    """What :meth:`Record.to_json` wrote, for the spec of this name. Raises ValueError for anything else."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.pop("version", None) != VERSION:
        raise ValueError(f"expected a mapping with version: {VERSION}")
    now = document.pop("now", {})
    what = from_plain(document, Granted)
    if what.file != file:
        raise ValueError(f"expected the name {what.file}")
    return Record(what, None if now is None else from_plain({**document, **dict(now)}, Granted))


def kind(resource: str) -> str:
    """Vendor and class, for people to read. A dot within a class would need a newer specification."""
    domain, _, name = resource.partition("/")
    class_ = re.sub(r"[^A-Za-z0-9_-]", "-", name)
    return f"{VENDOR}.{domain}/{class_ if class_[0].isalpha() else f'n{class_}'}"


def text_of(name: str, what: Granted, real: Real) -> str:
    """The text of the spec of this name, in the oldest version that has what it needs, and validated as any other
    spec. Raises CdiError.
    """
    vendor_class, _, device = name.partition("=")
    edits = {
        "env": [f"{name}={value}" for name, value in sorted(what.env.items())],
        "deviceNodes": [_node(node, real) for node in what.device_nodes],
        "mounts": [_mount(mount) for mount in what.mounts],
    }
    said = {key: value for key, value in edits.items() if value}
    document = {"kind": vendor_class, "devices": [{"name": device, "containerEdits": said}]}
    needed = spec.read(_text(document, spec.VERSIONS[-1]), what.file).needed_version()
    text = _text(document, max(OLDEST, needed, key=spec.VERSIONS.index))
    spec.read(text, what.file)
    return text


def _text(document: Mapping[str, Any], version: str) -> str:
    return json.dumps({"cdiVersion": version, **document}, indent=1) + "\n"


def _node(node: DeviceNode, real: Real) -> Mapping[str, Any]:
    """A runtime follows no links to a node, and finds none in directories (deviceInfoFromPath, pkg/cdi). Before 1.0 of
    that library it makes a node that everybody may open, unless its mode is said.
    """
    path, found = real(node.host_path)
    if found is not None and not found.type:
        raise CdiError(f"{node.host_path} is no device node on this host, and a CDI spec can't say anything else of it")
    return {
        "path": node.container_path,
        **({} if path == node.container_path else {"hostPath": path}),
        "permissions": node.permissions,
        **({} if found is None else {"fileMode": found.mode}),
    }


def _mount(mount: Mount) -> Mapping[str, Any]:
    """As kubelets mount what a device plugin names."""
    options = ["rbind", "rprivate", "ro" if mount.read_only else "rw"]
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options}


def sayable(what: Allocation | Granted) -> dict[str, Any]:
    """The fields that a spec can express. Runtimes refuse a spec in which all of them are empty."""
    return {name: getattr(what, name) for name in ("env", "device_nodes", "mounts")}

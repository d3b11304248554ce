"""Produces the gateway's own specs: one per allocation, with one device. Pure.

The name is a hash of the grant, so that the same devices with the same allocation share a spec. The host's device nodes
are looked up each time the text is produced, because a link may lead to another node by then.
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
"""The version of :meth:`Granted.to_json`'s format."""
VENDOR = "dpgateway"
"""Prefix of the vendor, which must begin with a letter, while a resource's domain may begin with a digit."""
OLDEST = "0.3.0"
"""The oldest version that runtimes accept (vEarliest, specs-go/version.go)."""
OWN = re.compile(r"dpgateway-[0-9a-f]{32}\.json")
"""File names of the gateway's own specs. No driver gives their devices, so they are never resolved."""

OWN_NAME = re.compile(r"dpgateway\.[^/=]+/[^/=]+=d([0-9a-f]{32})")
"""Names of the devices in these specs."""

Real = Callable[[str], tuple[str, HostNode | None]]
"""Resolves a host path: with all links followed, and the file there; None if there is none."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The expressible part of an Allocate's grant."""

    directory: str
    """The directory of the spec."""
    device_plugins_dir: str
    """The device-plugins directory of the kubelet."""
    resource: str
    ids: tuple[str, ...]
    """The offered ids."""
    env: Mapping[str, str]
    device_nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]

    @property
    def key(self) -> str:
        """128 bits of a hash of all fields, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @property
    def file(self) -> str:
        return f"dpgateway-{self.key}.json"

    @property
    def name(self) -> str:
        """The CDI device's name. A device that begins with a digit would need a newer specification."""
        return f"{kind(self.resource)}=d{self.key}"

    def to_json(self) -> str:
        said = {"version": VERSION, **{key: getattr(self, key) for key in self.__slots__}, "env": dict(self.env)}
        return json.dumps(said, default=asdict, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Record:
    """One spec: the grant behind its name, and its present content, because hardware may move to other paths."""

    given: Granted
    now: Granted | None
    """The present content; None while the hardware is away: without a spec no container starts with another device."""

    def to_json(self) -> str:
        if self.now == self.given:
            return self.given.to_json()
        now = self.now and {**sayable(self.now), "env": dict(self.now.env)}
        return json.dumps({**json.loads(self.given.to_json()), "now": now}, default=asdict, sort_keys=True)


def recorded(text: str, file: str) -> Record:
    """Parses the text of :meth:`Record.to_json`. ``file``: the spec's name. Raises ValueError."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.pop("version", None) != VERSION:
            raise ValueError(f"expected a mapping with version: {VERSION}")
        now = document.pop("now", {})
        what = from_plain(document, Granted)
        if what.file != file:
            raise ValueError(f"expected the name {what.file}")
        return Record(what, None if now is None else from_plain({**document, **dict(now)}, Granted))
    except (TypeError, RecursionError) as error:  # as of a damaged file
        raise ValueError(str(error)) from error


def kind(resource: str) -> str:
    """A readable vendor and class. A dot within a class would need a newer specification."""
    domain, _, name = resource.partition("/")
    class_ = re.sub(r"[^A-Za-z0-9_-]", "-", name)
    return f"{VENDOR}.{domain}/{class_ if class_[0].isalpha() else f'n{class_}'}"


def text_of(name: str, what: Granted, real: Real) -> str:
    """The text of the spec with this device, in the oldest version that supports its fields, and validated like any
    other spec. Raises CdiError.
    """
    vendor_class, _, device = name.partition("=")
    env = tuple([f"{name}={value}" for name, value in sorted(what.env.items())])
    # Links are resolved and modes set: runtimes follow no links and accept no directories (deviceInfoFromPath,
    # pkg/cdi), and before 1.0 of that library a node without a mode is open to all users.
    nodes: list[Mapping[str, Any]] = []
    for node in what.device_nodes:
        path, found = real(node.host_path)
        if found is not None and not found.type:
            raise CdiError(f"{node.host_path} is no device node on this host, so a CDI spec can't have it as one")
        elsewhere = {} if path == node.container_path else {"hostPath": path}
        mode = {} if found is None else {"fileMode": found.mode}
        nodes.append({"path": node.container_path, **elsewhere, "permissions": node.permissions, **mode})
    mounts: list[Mapping[str, Any]] = []
    for mount in what.mounts:  # with the options of a kubelet's mount
        options = ("rbind", "rprivate", "ro" if mount.read_only else "rw")
        mounts.append({"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options})

    # As values it is checked, and knows the version that it needs: in the newest one any field may be used.
    try:
        edits = spec.Edits(
            env,
            tuple([spec.SpecNode(**node) for node in nodes]),
            mounts=tuple([spec.SpecMount(**mount) for mount in mounts]),
        )
        whole = spec.Spec(spec.VERSIONS[-1], vendor_class, (spec.SpecDevice(device, containerEdits=edits),))
    except (ValueError, ExceptionGroup) as error:
        raise CdiError(f"{what.file}: {error}") from error
    version = max(OLDEST, whole.needed_version(), key=spec.VERSIONS.index)
    said = {key: value for key, value in {"env": env, "deviceNodes": nodes, "mounts": mounts}.items() if value}
    devices = [{"name": device, "containerEdits": said}]
    return json.dumps({"cdiVersion": version, "kind": vendor_class, "devices": devices}, indent=1) + "\n"


def sayable(what: Allocation | Granted) -> dict[str, Any]:
    """The fields that a spec can express. Runtimes refuse a spec with all of them empty."""
    return {"env": what.env, "device_nodes": what.device_nodes, "mounts": what.mounts}

"""A resource's options, validated on construction."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from dpgateway import refuse
from dpgateway.sysfs import ANY_TYPE, HOST_DEV, is_glob
from dpgateway_chardev.doubts import POOL, doubts
from dpgateway_chardev.keys import CharDeviceKeys
from dpgateway_chardev.paths import about, no_id, not_absolute, not_under_dev, relative
from dpgateway_chardev.patterns import excludes, matches, parse
from dpgateway_chardev.settings import NodeType, wrong_permissions
from dpgateway_chardev.templates import wrong_templates

_MEMORY = ("mem", "kmem", "port")
_EVERYTHING = ("/dev/*", "/dev/**", "/dev/**/*")
_PLACEHOLDER = re.compile(r"\{[^/]*?\}")
_OF_PATHS = frozenset({"{name}", "{id}", "{devnode}"})
"""The fields of texts with paths."""
_OF_MATCH = (
    "id", "group", "parts", "expected", "requires", "numa", "env", "annotations", "mounts", "device_info",
)  # fmt: skip
"""The keys that are valid only with match."""


@dataclass(frozen=True, slots=True)
class CharDeviceOptions(CharDeviceKeys):
    """Which device nodes are offered, and how a container gets them."""

    def __post_init__(self) -> None:
        wrong = [*not_under_dev("paths", self.paths), *not_under_dev("exclude", self.exclude)]
        for key in ("dev", "sysfs", "proc", "udev", "host"):
            wrong += not_absolute(key, getattr(self, key))
        if bool(self.paths) == bool(self.match):
            expected = "expected either paths (device nodes by name) or match (devices by their properties)"
            wrong.append(f"{expected}, found {'both' if self.paths else 'neither'}")
        elif self.match:
            wrong += wrong_templates(self)
        else:
            wrong += [f"{key}: expected it with match only" for key in _OF_MATCH if getattr(self, key)]
        for number, id_ in enumerate(self.expected):
            wrong += no_id(f"expected[{number}]", id_)
        if self.match and self.exclude:
            wrong.append("exclude: expected it with paths only")
        if self.type not in get_args(NodeType):
            wrong.append(f"type: expected char, block or any, found {self.type!r}")
        wrong += wrong_permissions(self.permissions)
        if self.container_path is not None:
            wrong += not_absolute("container_path", self.container_path)
        wrong += self._wrong_placeholders() if not self.match else ()
        refuse(wrong)

    def _wrong_placeholders(self) -> Iterator[str]:
        """The errors in texts with paths, which have few fields."""
        if self.health is not None and self.health.attr:
            yield "health: attr: expected it with match only"
        rows = [("health: command", text) for text in (self.health.command if self.health else ())]
        rows += [] if self.container_path is None else [("container_path", self.container_path)]
        for key, text in rows:
            for placeholder in _PLACEHOLDER.findall(text):
                if placeholder not in _OF_PATHS:
                    yield f"{key}: expected {{name}}, {{id}} or {{devnode}}, found {placeholder!r}"
        for number, one in enumerate(self.access):
            if "{" in about(one.host_path, ""):
                expected = "expected a path, perhaps with {name}, {id} or {devnode}"
                yield f"access[{number}]: host_path: {expected}, found {one.host_path!r}"

    def warnings(self, others: Mapping[str, CharDeviceOptions]) -> Iterator[str]:
        """The warnings of ``dpgateway check``: options that probably give containers more than intended, or nothing."""
        for number, path in enumerate(self.paths):
            for memory in _MEMORY if self.type != "block" else ():
                if self._meet(path, f"{HOST_DEV}/{memory}", ()):
                    yield f"paths[{number}]: /dev/{memory} is offered: it gives a container the whole node"
            if path in _EVERYTHING:
                yield f"paths[{number}]: every device node is offered, also those that are added later"
            for name, other in others.items():
                shared = [theirs for theirs in other.paths if self._meet(path, theirs, other.excluded)]
                same = ANY_TYPE in {self.type, other.type} or self.type == other.type
                if shared and same and other.dev == self.dev:
                    text = f"{name} offers it too, through {shared[0]}, so that two containers can get one device"
                    yield f"paths[{number}]: {text}; {POOL}"
        if self.match:
            yield from doubts(self, {name: other for name, other in others.items() if other.match})
        if "m" in self.permissions:
            yield "permissions: m lets a container make the device node itself (mknod), which drivers rarely need"

    def _meet(self, path: str, theirs: str, their_exclude: Sequence[str]) -> bool:
        """Whether both are equal, or one's glob matches the other's text. Two different globs may meet unnoticed."""
        ours, other = relative(path), relative(theirs)
        # exclude applies to globs only
        if is_glob(path) and excludes(other, [parse(one) for one in self.excluded]):
            return False
        if is_glob(theirs) and excludes(ours, [parse(one) for one in their_exclude]):
            return False
        pairs = ((ours, other), (other, ours))
        return ours == other or any(is_glob(glob) and matches(one.split("/"), parse(glob)) for one, glob in pairs)

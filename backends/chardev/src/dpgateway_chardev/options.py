"""What a resource can say about its device nodes. Options check themselves, so that the driver needn't."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from dpgateway import refuse
from dpgateway.sysfs import HOST_DEV, GroupOption, Parts, Roots, Selection, is_glob
from dpgateway_chardev.doubts import doubts
from dpgateway_chardev.paths import no_id, not_absolute, not_under_dev, relative
from dpgateway_chardev.patterns import excludes, matches, parse
from dpgateway_chardev.settings import Access, MountOption, NodeKind, NodeOption, Probes, Requirement, wrong_permissions
from dpgateway_chardev.templates import wrong_templates

_MEMORY = ("mem", "kmem", "port")
_EVERYTHING = ("/dev/*", "/dev/**", "/dev/**/*")
_PLACEHOLDER = re.compile(r"\{[^/]*?\}")


@dataclass(frozen=True, slots=True)
class CharDeviceOptions:
    """Which device nodes are offered, and how a container gets them."""

    unknown_key: ClassVar = "SYMLINK+= of udev's rules is container_path here, and MODE=, GROUP= are access"
    """The hint for what is none of these keys."""

    paths: tuple[str, ...] = field(
        default=(),
        metadata={"help": "device nodes under /dev: paths, listed even while absent, and globs (*, ?, [...], **)"},
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata={"help": "paths and globs under /dev that the globs of `paths` skip, with all below them"}
    )
    match: tuple[NodeKind, ...] = field(
        default=(),
        metadata={"help": "what devices are, in sysfs, in udev's words: tests that all pass", "single": True},
    )
    id: str | None = field(
        default=None, metadata={"help": "with match: the devices' ids, a template; else serial number, or bus address"}
    )
    group: GroupOption | None = field(
        default=None, metadata={"help": "with match: what makes several objects one device; else each is a device"}
    )
    parts: Parts | None = field(
        default=None, metadata={"help": "with match: what makes one object several devices, each with a {part}"}
    )
    expected: tuple[str, ...] = field(
        default=(), metadata={"help": "with match: ids of devices that are listed, Unhealthy, though nothing is there"}
    )
    requires: tuple[Requirement, ...] = field(
        default=(),
        metadata={"help": "with match: files, sockets, ... without which a device is Unhealthy", "single": True},
    )
    numa: str | None = field(
        default=None, metadata={"help": "with match: a template for the NUMA node; empty: none; else the nearest one"}
    )
    nodes: tuple[NodeOption, ...] = field(
        default=(NodeOption(("{devnode}",)),),
        metadata={"help": "with match: the device nodes that a container gets, as templates", "single": True},
    )
    env: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "with match: environment, as templates, joined by commas; a mapping becomes JSON"},
    )
    annotations: Mapping[str, str] = field(default_factory=dict, metadata={"help": "with match: as env"})
    mounts: tuple[MountOption, ...] = field(
        default=(), metadata={"help": "with match: files and directories, as templates"}
    )
    device_info: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "with match: the JSON for Multus and CNI plugins, whose texts are templates"},
    )
    access: tuple[Access, ...] = field(
        default=(), metadata={"help": "with match: who may use files, which is set before a container gets them"}
    )
    health: Probes | None = field(default=None, metadata={"help": "what a device has to stand to be healthy"})
    type: Literal["char", "block"] = field(default="char", metadata={"help": "which kind of device node is offered"})
    permissions: str = field(default="rw", metadata={"help": "what the container may do: some of r, w, m (mknod)"})
    container_path: str | None = field(
        default=None,
        metadata={"help": "the path in the container; {name}: the last part of the host's path, {id}: the device's id"},
    )
    dev: str = field(default=HOST_DEV, metadata={"help": "where the host's /dev is seen from the gateway's container"})
    sysfs: str = field(default="/sys", metadata={"help": "where the host's /sys is seen from the gateway's container"})
    proc: str = field(default="/proc", metadata={"help": "where the host's /proc is seen from the gateway's container"})
    udev: str = field(
        default="/run/udev", metadata={"help": "where the host's /run/udev is seen from the gateway's container"}
    )

    host: str = field(
        default="/", metadata={"help": "where other files of the host are seen from the gateway's container"}
    )

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        yield from not_under_dev("paths", self.paths)
        yield from not_under_dev("exclude", self.exclude)
        for key in ("dev", "sysfs", "proc", "udev", "host"):
            yield from not_absolute(key, getattr(self, key))
        if bool(self.paths) == bool(self.match):
            found = "both" if self.paths else "neither"
            yield f"expected either paths (device nodes by name) or match (devices by what they are), found {found}"
        elif self.match:
            yield from wrong_templates(self)
        else:
            yield from (f"{key}: expected it with match only" for key in self._of_match if getattr(self, key))
            yield from self._wrong_health()
        for number, id_ in enumerate(self.expected):
            yield from no_id(f"expected[{number}]", id_)
        if self.match and self.exclude:
            yield "exclude: expected it with paths only"
        if self.type not in {"char", "block"}:
            yield f"type: expected char or block, found {self.type!r}"
        yield from wrong_permissions(self.permissions)
        yield from self._wrong_container_path()

    def _wrong_health(self) -> Iterator[str]:
        """What can't be meant with paths."""
        if self.health is not None and self.health.attr:
            yield "health: attr: expected it with match only"
        for text in self.health.command if self.health else ():
            for placeholder in _PLACEHOLDER.findall(text):
                if placeholder not in {"{name}", "{id}"}:
                    yield f"health: command: expected {{name}} or {{id}}, found {placeholder!r}"

    def _wrong_container_path(self) -> Iterator[str]:
        if self.container_path is not None:
            yield from not_absolute("container_path", self.container_path)
            for placeholder in _PLACEHOLDER.findall(self.container_path) if self.paths else ():
                if placeholder not in {"{name}", "{id}"}:
                    yield f"container_path: expected {{name}} or {{id}}, found {placeholder!r}"

    @property
    def _of_match(self) -> Sequence[str]:
        return (
            "id",
            "group",
            "parts",
            "expected",
            "requires",
            "numa",
            "env",
            "annotations",
            "mounts",
            "device_info",
            "access",
        )

    @property
    def roots(self) -> Roots:
        return Roots(sysfs=self.sysfs, dev=self.dev, proc=self.proc, udev=self.udev)

    @property
    def selection(self) -> Selection:
        """What ``match`` and the keys beside it say, apart from nodes and whatever else a container gets."""
        tests = {} if self.health is None else self.health.attr
        return Selection(
            self.match, self.id, self.group, self.parts, self.numa, health=tests, expected=self.expected,
            roots=self.roots,
        )  # fmt: skip

    def warnings(self, others: Mapping[str, CharDeviceOptions]) -> Iterator[str]:
        """For ``dpgateway check``: what gives containers more than is meant, or nothing, as likely as not."""
        yield from self._doubtful_paths(others)
        if self.match:
            yield from doubts(self, {name: other for name, other in others.items() if other.match})
        if "m" in self.permissions:
            yield "permissions: m lets a container make the device node itself (mknod), which drivers rarely need"

    def _doubtful_paths(self, others: Mapping[str, CharDeviceOptions]) -> Iterator[str]:
        for number, path in enumerate(self.paths):
            for memory in _MEMORY if self.type == "char" else ():
                if self._meet(path, f"{HOST_DEV}/{memory}", ()):
                    yield f"paths[{number}]: /dev/{memory} is offered: who has it can read or change all of the node"
            if path in _EVERYTHING:
                yield f"paths[{number}]: every device node is offered, also those that are added later"
            for name, other in others.items():
                shared = [theirs for theirs in other.paths if self._meet(path, theirs, other.excluded)]
                if shared and (other.type, other.dev) == (self.type, self.dev):
                    text = f"{name} offers it too, through {shared[0]}, so that two containers can get one device"
                    yield f"paths[{number}]: {text}; in one pool they exclude each other"

    def _meet(self, path: str, theirs: str, their_exclude: Sequence[str]) -> bool:
        """Whether both name the same, or one names what the other's glob matches (a glob counts as its text)."""
        ours, other = relative(path), relative(theirs)
        if is_glob(path) and excludes(other, [parse(one) for one in self.excluded]):
            return False
        if is_glob(theirs) and excludes(ours, [parse(one) for one in their_exclude]):
            return False
        pairs = ((ours, other), (other, ours))
        return ours == other or any(is_glob(glob) and matches(one.split("/"), parse(glob)) for one, glob in pairs)

    @property
    def literals(self) -> tuple[str, ...]:
        """The ids of the devices whose paths are spelled out."""
        return tuple(relative(path) for path in self.paths if not is_glob(path))

    @property
    def globs(self) -> tuple[str, ...]:
        return tuple(relative(path) for path in self.paths if is_glob(path))

    @property
    def excluded(self) -> tuple[str, ...]:
        return tuple(relative(path) for path in self.exclude)

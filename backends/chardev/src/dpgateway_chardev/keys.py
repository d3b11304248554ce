"""The keys of a resource's options, without checks. The modules with the checks depend on this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dpgateway.sysfs import HOST_DEV, GroupOption, Parts, Roots, Selection, is_glob
from dpgateway_chardev.paths import relative
from dpgateway_chardev.settings import Access, MountOption, NodeKind, NodeOption, NodeType, Probes, Requirement


@dataclass(frozen=True, slots=True)
class CharDeviceKeys:
    """Which device nodes are offered, and how a container gets them."""

    unknown_key: ClassVar = "SYMLINK+= of udev's rules is container_path here, and MODE=, GROUP= are access"
    """The hint for an unknown key."""

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
        default=(), metadata={"help": "owner, group and mode of files, set before a container gets them"}
    )
    health: Probes | None = field(default=None, metadata={"help": "the probes that a healthy device passes"})
    type: NodeType = field(
        default="char", metadata={"help": "which device nodes are offered: char, block, or any of both"}
    )
    permissions: str = field(default="rw", metadata={"help": "the container's rights: some of r, w, m (mknod)"})
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

    @property
    def roots(self) -> Roots:
        return Roots(sysfs=self.sysfs, dev=self.dev, proc=self.proc, udev=self.udev)

    @property
    def selection(self) -> Selection:
        """The options for a survey: ``match`` and its companions, without a container's nodes, mounts and so on."""
        tests = {} if self.health is None else self.health.attr
        return Selection(
            self.match, self.id, self.group, self.parts, self.numa, health=tests, expected=self.expected,
            roots=self.roots,
        )  # fmt: skip

    @property
    def literals(self) -> tuple[str, ...]:
        """The ids of devices with literal paths."""
        return tuple(relative(path) for path in self.paths if not is_glob(path))

    @property
    def globs(self) -> tuple[str, ...]:
        return tuple(relative(path) for path in self.paths if is_glob(path))

    @property
    def excluded(self) -> tuple[str, ...]:
        return tuple(relative(path) for path in self.exclude)

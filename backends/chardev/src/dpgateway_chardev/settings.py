"""Mappings within the options: a node, a mount, a required file, access to a file, probes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Literal

from dpgateway import refuse
from dpgateway.sysfs import HOST_DEV, Kind, Match, Test

ID = {"id": "the device's id"}
NodeType = Literal["char", "block", "any"]
_AT_DEV = (f"{HOST_DEV}/", "{devnode}", "{symlink:")


def wrong_permissions(permissions: str) -> Iterator[str]:
    if not permissions or not set(permissions) <= set("rwm"):
        yield f"permissions: expected some of r, w and m, found {permissions!r}"
    elif len(set(permissions)) != len(permissions):
        yield f"permissions: expected each letter once, found {permissions!r}"


def _relative(key: str, path: str, others: Sequence[str] = ()) -> Iterator[str]:
    if not path.startswith(("/", *others)):
        yield f"{key}: expected an absolute path, found {path!r}"


@dataclass(frozen=True, slots=True)
class NodeOption:
    """A device node that belongs to a device."""

    short_form: ClassVar[str] = "host_path"

    host_path: tuple[str, ...] = field(
        metadata={"help": "the node's path on the host, a template: {devnode}; of several the first one that is there",
                  "single": True}
    )  # fmt: skip
    container_path: str | None = field(
        default=None, metadata={"help": "its path in the container, a template; {id}: the device's id"}
    )
    permissions: str | None = field(default=None, metadata={"help": "some of r, w, m; else the driver's permissions"})
    optional: bool = field(default=False, metadata={"help": "whether a device without this node is healthy"})
    type: NodeType | None = field(
        default=None, metadata={"help": "char, block, or any of both; else the driver's type"}
    )

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if not self.host_path:
            wrong.append("host_path: expected a template, found none")
        expected = "expected a template that begins with /dev/ or {devnode}"
        not_in_dev = [path for path in self.host_path if not path.startswith(_AT_DEV)]
        wrong += [f"host_path: {expected}, found {path!r}" for path in not_in_dev]
        if self.container_path is not None:
            wrong += _relative("container_path", self.container_path, _AT_DEV)
        if self.permissions is not None:
            wrong += wrong_permissions(self.permissions)
        refuse(wrong)


@dataclass(frozen=True, slots=True)
class NodeKind(Kind):
    """One alternative of a match, optionally with its own nodes."""

    nodes: tuple[NodeOption, ...] | None = field(
        default=None, metadata={"help": "the nodes of objects of this kind, instead of the driver's", "single": True}
    )


@dataclass(frozen=True, slots=True)
class MountOption:
    """A file or directory of the host that is mounted with a device."""

    host_path: str = field(metadata={"help": "its path on the host, a template"})
    container_path: str = field(metadata={"help": "its path in the container, a template; {id}: the device's id"})
    read_only: bool = field(default=True, metadata={"help": "whether the container can't write to it"})

    def __post_init__(self) -> None:
        refuse([*_relative("host_path", self.host_path), *_relative("container_path", self.container_path)])


@dataclass(frozen=True, slots=True)
class Requirement:
    """A file, socket or directory of the host that a device requires."""

    short_form: ClassVar[str] = "host_path"

    host_path: str = field(metadata={"help": "the path of a file, socket or directory on the host, a template"})
    text: Test | None = field(default=None, metadata={"help": "a test of all of the file's text"})

    def __post_init__(self) -> None:
        refuse(_relative("host_path", self.host_path))


@dataclass(frozen=True, slots=True)
class Access:
    """Owner, group and mode of a file of the host, in udev's words."""

    host_path: str = field(metadata={"help": "the path of a node, socket or directory on the host, a template"})
    owner: int | None = field(default=None, metadata={"help": "the owner's user id"})
    group: int | None = field(default=None, metadata={"help": "the number of its group"})
    mode: str | None = field(default=None, metadata={"help": "its permissions, in octal: 0660"})

    def __post_init__(self) -> None:
        wrong = list(_relative("host_path", self.host_path, _AT_DEV))
        for key, number in (("owner", self.owner), ("group", self.group)):
            if number is not None and not 0 <= number < 2**32 - 1:
                wrong.append(f"{key}: expected a number from 0 to {2**32 - 2}, found {number}")
        if self.mode is not None and not re.fullmatch("0?[0-7]{3}", self.mode):
            wrong.append(f"mode: expected three octal digits, as in 0660, found {self.mode!r}")
        if self.owner is None and self.group is None and self.mode is None:
            wrong.append("expected owner, group or mode, found none of them")
        refuse(wrong)


@dataclass(frozen=True, slots=True)
class Probes:
    """The health probes of a device."""

    open: bool = field(
        default=False, metadata={"help": "its nodes can be opened, without waiting; that may have effects, as on ttys"}
    )
    attr: Mapping[str, Test] = field(
        default_factory=dict, metadata={"help": "with match: tests of attributes, as in match, at each look"}
    )
    command: tuple[str, ...] = field(
        default=(), metadata={"help": "a program, and its arguments, as templates, that ends with 0; no shell"}
    )
    every: timedelta = field(default=timedelta(seconds=30), metadata={"help": "how often nodes are opened and so on"})
    deadline: timedelta = field(default=timedelta(seconds=5), metadata={"help": "how long that may take"})

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if not self.open and not self.attr and not self.command:
            wrong.append("expected open, attr or command, found none of them")
        try:
            Match("any", attr=self.attr)
        except ValueError as error:
            wrong.append(str(error))
        if self.command and not self.command[0].startswith("/"):
            wrong.append(f"command: expected the absolute path of a program first, found {self.command[0]!r}")
        for key, time in (("every", self.every), ("deadline", self.deadline)):
            if time <= timedelta():
                wrong.append(f"{key}: expected more than 0s, found {time.total_seconds():g}s")
        refuse(wrong)

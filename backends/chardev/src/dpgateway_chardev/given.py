"""What a container gets of a device that was matched: templates in the configuration, and what they came to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from dpgateway import Allocation, DeviceNode, DriverError, Mount, refuse
from dpgateway.sysfs import HOST_DEV, Node

ID = {"id": "the device's id"}


def wrong_permissions(permissions: str) -> Iterator[str]:
    if not permissions or not set(permissions) <= set("rwm"):
        yield f"permissions: expected some of r, w and m, found {permissions!r}"
    elif len(set(permissions)) != len(permissions):
        yield f"permissions: expected each letter once, found {permissions!r}"


@dataclass(frozen=True, slots=True)
class NodeOption:
    """A device node that belongs to a device."""

    short_form: ClassVar[str] = "host_path"

    host_path: str = field(metadata={"help": "the node's path on the host, a template: {devnode}"})
    container_path: str | None = field(
        default=None, metadata={"help": "its path in the container, a template; {id}: the device's id"}
    )
    permissions: str | None = field(default=None, metadata={"help": "some of r, w, m; else the driver's permissions"})
    optional: bool = field(default=False, metadata={"help": "whether a device without this node is healthy"})

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if not self.host_path.startswith((f"{HOST_DEV}/", "{devnode}")):
            yield f"host_path: expected a template that begins with /dev/ or {{devnode}}, found {self.host_path!r}"
        if self.container_path is not None and not self.container_path.startswith(("/", "{devnode}")):
            yield f"container_path: expected an absolute path, found {self.container_path!r}"
        if self.permissions is not None:
            yield from wrong_permissions(self.permissions)


@dataclass(frozen=True, slots=True)
class MountOption:
    """A file or directory of the host that is mounted with a device."""

    host_path: str = field(metadata={"help": "its path on the host, a template"})
    container_path: str = field(metadata={"help": "its path in the container, a template; {id}: the device's id"})
    read_only: bool = field(default=True, metadata={"help": "whether the container can't write to it"})

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        for key, path in (("host_path", self.host_path), ("container_path", self.container_path)):
            if not path.startswith("/"):
                yield f"{key}: expected an absolute path, found {path!r}"


@dataclass(frozen=True, slots=True)
class GivenNode:
    """A device node as it was when the device was listed."""

    path: str
    """On the host."""
    container_path: str
    permissions: str
    node: Node
    constant: bool = False
    """Whether it is the same for all devices, as /dev/vfio/vfio is, and no device's own."""


@dataclass(frozen=True, slots=True)
class Given:
    """What one device gives a container."""

    nodes: tuple[GivenNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def together(given: list[tuple[str, Given]]) -> Allocation:
    """What a container gets that gets several devices, by their ids, in the order in which they were asked for.

    A value of the environment, or of an annotation, is the devices' values with commas between, each once; unless
    ``{index}`` in its name makes a variable for each device.
    """
    nodes: dict[str, GivenNode] = {}
    owners: dict[str, str] = {}
    mounts: dict[Mount, None] = {}
    for id_, one in given:
        for node in one.nodes:
            other = nodes.setdefault(node.container_path, node)
            if other != node:
                raise DriverError(
                    f"{other.path} of {owners[node.container_path]} and {node.path} of {id_} can't both be "
                    f"{node.container_path} in one container: expected a container_path with {{id}} or another field"
                )
            owners.setdefault(node.container_path, id_)
        mounts |= dict.fromkeys(one.mounts)
    return Allocation(
        env=_joined([one.env for _, one in given]),
        device_nodes=tuple(DeviceNode(node.path, node.container_path, node.permissions) for node in nodes.values()),
        mounts=tuple(mounts),
        annotations=_joined([one.annotations for _, one in given]),
    )


def _joined(texts: list[tuple[tuple[str, str], ...]]) -> dict[str, str]:
    values: dict[str, dict[str, None]] = {}
    for index, pairs in enumerate(texts):
        for name, value in pairs:
            values.setdefault(name.replace("{index}", str(index)), {})[value] = None
    return {name: ",".join(each) for name, each in values.items()}

"""Contributions of matched devices to a container: filled templates, and their merge into one allocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from dpgateway import Allocation, DeviceNode, DriverError, Mount
from dpgateway.sysfs import DevNode
from dpgateway_chardev.jsons import JsonText, merged
from dpgateway_chardev.settings import Access

_LONGEST = 200
"""Limit of characters of a difference in a message."""


@dataclass(frozen=True, slots=True)
class GivenNode:
    """A device node as it was when the device was listed."""

    path: str
    """The node's path on the host."""
    container_path: str
    permissions: str
    node: DevNode
    constant: bool = False
    """Whether all devices give the same node, such as /dev/vfio/vfio, which then isn't a device's hardware."""

    def __str__(self) -> str:
        return f"{self.path} ({self.node}) as {self.container_path}, {self.permissions}"


@dataclass(frozen=True, slots=True)
class GivenAccess:
    """Owner, group and mode of a file of the host, set at allocation. None leaves one as it is."""

    path: str
    owner: int | None
    group: int | None
    mode: int | None

    @classmethod
    def of(cls, option: Access, path: str) -> GivenAccess:
        return cls(path, option.owner, option.group, None if option.mode is None else int(option.mode, 8))

    def __str__(self) -> str:
        return f"{self.path}: owner {self.owner}, group {self.group}, mode {self.mode and oct(self.mode)}"


@dataclass(frozen=True, slots=True)
class Contribution:
    """One device's contribution to a container."""

    nodes: tuple[GivenNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str | JsonText], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    access: tuple[GivenAccess, ...] = ()
    info: str = ""
    """The text of its device-info file; empty without one."""


def differing(listed: Contribution, now: Contribution) -> str:
    """Describes how a device's contribution differs from the listed one, for people."""
    # dicts as ordered sets, so that the message keeps the order of the configuration
    before, after = dict[tuple[str, str], None](), dict[tuple[str, str], None]()
    for given, words in ((listed, before), (now, after)):
        for one in fields(given):
            value = getattr(given, one.name)
            items = value if isinstance(value, tuple) else [value] if value else []
            words.update(((one.name, _words(item)), None) for item in items)
    gone = [f"{name} {text}" for name, text in before if (name, text) not in after]
    new = [f"{name} {text}" for name, text in after if (name, text) not in before]
    return f"it gives {_few(new)} now, it was listed with {_few(gone)}"


def _words(item: object) -> str:
    match item:
        case Mount(host_path, container_path, read_only):
            return f"{host_path} at {container_path}{', read-only' if read_only else ''}"
        case (name, JsonText(text) | str(text)):
            return f"{name}={text}"
    return str(item)


def _few(texts: Sequence[str]) -> str:
    """Truncates the texts, so that a line of the log stays readable."""
    text = "; ".join(texts)
    return f"{text[:_LONGEST]}..." if len(text) > _LONGEST else text or "nothing else"


def together(given: list[tuple[str, Contribution]], resource: str) -> Allocation:
    """Merges the contributions of a container's devices, given with their ids in the order of the request. Raises
    DriverError if two different things have one container path.

    A variable's or annotation's value is the devices' values joined by commas, without duplicates; ``{index}`` in the
    name makes one for each device. ``{resource}`` in a name is the resource's name as KubeVirt (pkg/util/util.go,
    ResourceNameToEnvVar) and the SR-IOV plugin (pkg/resources/pool_stub.go) write it.
    """
    taken: dict[str | None, tuple[str, DeviceNode | Mount]] = {}
    # several devices may give the same thing, such as /dev/vfio/vfio; only different ones at one path conflict
    for id_, one in given:
        things: list[DeviceNode | Mount] = list(one.mounts)
        things[:0] = [DeviceNode(node.path, node.container_path, node.permissions) for node in one.nodes]
        for thing in things:
            whose, other = taken.setdefault(thing.container_path, (id_, thing))
            if other != thing:
                raise DriverError(_both(whose, other, id_, thing))
    whole = [thing for _, thing in taken.values()]
    return Allocation(
        env=_joined([one.env for _, one in given], resource.upper().replace("/", "_").replace(".", "_")),
        device_nodes=tuple(one for one in whole if isinstance(one, DeviceNode)),
        mounts=tuple(one for one in whole if isinstance(one, Mount)),
        annotations=_joined([one.annotations for _, one in given]),
    )


def _both(whose: str, other: DeviceNode | Mount, id_: str, thing: DeviceNode | Mount) -> str:
    """The error for two things at one container path. It suggests ``{id}`` only if they are of different devices."""
    which = "{id} or another field" if whose != id_ else "a field that tells them apart, or one of them only"
    alike = isinstance(other, DeviceNode) and isinstance(thing, DeviceNode) and other.host_path == thing.host_path
    first, second = (
        f"{one.host_path}, {one.permissions}," if alike and isinstance(one, DeviceNode) else one.host_path
        for one in (other, thing)
    )
    return (
        f"{first} of {whose} and {second} of {id_} can't both be {thing.container_path} in one container: "
        f"expected a container_path with {which}"
    )


def _joined(texts: list[tuple[tuple[str, str | JsonText], ...]], resource: str = "") -> dict[str, str]:
    # the inner dicts are ordered sets: each value once, in the order of the devices
    values: dict[str, dict[str | JsonText, None]] = {}
    for index, pairs in enumerate(texts):
        for name, value in pairs:
            variable = name.replace("{index}", str(index)).replace("{resource}", resource)
            values.setdefault(variable, {})[value] = None
    joined: dict[str, str] = {}
    for name, each in values.items():
        objects = [value for value in each if isinstance(value, JsonText)]
        joined[name] = merged(objects) if objects else ",".join(value for value in each if isinstance(value, str))
    return joined

"""CDI names as what every kubelet can pass on: env, mounts and device nodes. Pure.

What the API can't say is refused, never left out: a container that lacks a part of its device may work wrongly, or get
more than the spec grants. What is refused is told with its name, the spec's file and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dpgateway.cdi import spec
from dpgateway.errors import CdiError
from dpgateway.model import Allocation, DeviceNode, Mount, place

SAID = frozenset({"bind", "rbind", "private", "rprivate", "rw", "ro"})
"""The mount options that a kubelet's mount has anyway (rbind, rprivate), or that the API can say."""
BINDS = frozenset({"", "none", "bind"})
"""The types of a mount of the host's own files. With another type it would be a file system of its own."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What one name stands for."""

    name: str
    file: str
    """The spec's."""
    common: spec.Edits
    """What a container gets once, with whichever devices of this spec."""
    own: spec.Edits


@dataclass(frozen=True, slots=True)
class HostNode:
    """A device node of the host as it is."""

    type: str
    """``b`` or ``c``; empty for what is no device node."""
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


Look = Callable[[str], HostNode | None]
"""What is at a path of the host, links followed; None if nothing is."""


def expand(allocation: Allocation, resolved: Iterable[Resolved], look: Look) -> Allocation:
    """The allocation with what its names stand for in their place. Raises CdiError with all that can't be expanded.

    A runtime changes the container after everything else, so a spec wins over the rest of the allocation, and a later
    name over an earlier one (Apply, pkg/cdi/container-edits.go). A spec's common part comes once, before its devices.
    """
    env = dict(allocation.env)
    placed: dict[str, DeviceNode | Mount] = {_place(node): node for node in allocation.device_nodes}
    placed |= {_place(mount): mount for mount in allocation.mounts}
    wrong: list[str] = []
    seen: set[str] = set()
    for one in resolved:
        edits = (one.own,) if one.file in seen else (one.common, one.own)
        seen.add(one.file)
        for edit in edits:
            wrong += [f"{one.name} ({one.file}): {text}" for text in _unsayable(edit, look)]
            env |= {name: value for name, _, value in (text.partition("=") for text in edit.env)}
            try:
                placed |= {_place(each): each for each in _given(edit)}
            except (ValueError, TypeError) as error:  # a relative path, for example
                wrong.append(f"{one.name} ({one.file}): {error}")
    if wrong:
        raise CdiError("; ".join(dict.fromkeys(wrong)))
    nodes = tuple(one for one in placed.values() if isinstance(one, DeviceNode))
    mounts = tuple(one for one in placed.values() if isinstance(one, Mount))
    try:
        return replace(allocation, env=env, device_nodes=nodes, mounts=mounts, cdi_devices=())
    except ValueError as error:  # a NUL in the environment
        raise CdiError(str(error)) from error


def _place(one: DeviceNode | Mount) -> str:
    return place(str(one.container_path))


def _given(edits: spec.Edits) -> Iterator[DeviceNode | Mount]:
    for node in edits.deviceNodes:
        if node.permissions != "none":
            yield DeviceNode(node.hostPath or node.path, node.path, _once(node.permissions) or "rwm")
    for mount in edits.mounts:
        yield Mount(mount.hostPath, mount.containerPath, read_only=_read_only(mount.options))


def _once(permissions: str) -> str:
    return "".join(dict.fromkeys(permissions))


def _read_only(options: Iterable[str]) -> bool:
    """The last one counts, as for mount(8)."""
    return [option for option in ("rw", *options) if option in {"ro", "rw"}][-1] == "ro"


def _unsayable(edits: spec.Edits, look: Look) -> Iterator[str]:
    """What no kubelet can pass on."""
    for hook in edits.hooks:
        yield f"its hook {hook.hookName} {hook.path} can't be expanded"
    for net in edits.netDevices:
        yield f"its network device {net.hostInterfaceName} can't be expanded"
    if edits.intelRdt is not None:
        yield "its intelRdt can't be expanded"
    if groups := [str(group) for group in edits.additionalGids if group]:  # 0 is ignored, as SPEC.md says
        yield f"its additionalGids {', '.join(groups)} can't be expanded"
    for mount in edits.mounts:
        yield from _unlike_kubelets(mount)
    for node in edits.deviceNodes:
        yield from _unlike_host(node, look)


def _unlike_kubelets(mount: spec.Mount) -> Iterator[str]:
    """What the spec wants of the mount that a kubelet's mount can't have."""
    if mount.type not in BINDS:
        yield f"its mount {mount.containerPath} of type {mount.type} can't be expanded: only the host's files can"
    if options := [option for option in mount.options if option not in SAID]:
        yield f"its mount {mount.containerPath} has options that the API can't say: {', '.join(options)}"


def _unlike_host(node: spec.DeviceNode, look: Look) -> Iterator[str]:
    """In what the spec's node differs from the host's: a kubelet gives the host's node as it is."""
    path = node.hostPath or node.path
    if node.permissions == "none":
        yield f"its device node {node.path} has no permissions at all, which the API can't say"
    if node.type == "p":
        yield f"its device node {node.path} is a named pipe, which the API can't say"
        return
    wanted = {
        "type": "c" if node.type == "u" else node.type or None,  # u is an unbuffered character device: mknod(1)
        "major": node.major or None,  # 0 means that nobody said it, as in Go
        "minor": node.minor if node.major else None,
        "mode": None if node.fileMode is None else node.fileMode & 0o7777,
        "uid": node.uid,
        "gid": node.gid,
    }
    said = {key: value for key, value in wanted.items() if value is not None}
    found = look(path)
    if found is not None and not found.type and "type" not in said:  # a container gets all nodes of a directory
        yield f"its device node {path} is no device node on this host"
        return
    if not said:
        return
    if found is None:
        yield f"its device node {path} isn't there, so nobody can tell whether it is the one that the spec means"
        return
    differ = [
        f"{key} {_shown(key, getattr(found, key))}, expected {_shown(key, value)}"
        for key, value in said.items()
        if getattr(found, key) != value
    ]
    if differ:
        yield f"its device node {path} is another on this host: {'; '.join(differ)}"


def _shown(key: str, value: object) -> str:
    return f"{value:04o}" if key == "mode" else str(value) or "none"

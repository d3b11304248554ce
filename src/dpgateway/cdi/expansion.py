"""Expands CDI names to env, mounts and device nodes, which every kubelet can pass on. Pure.

An edit that the device-plugin API can't express is refused, never dropped: without a part of its device a container may
misbehave, or get more than the spec grants. The error names the CDI device, the spec's file and the edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dpgateway.cdi import spec
from dpgateway.errors import CdiError
from dpgateway.model import Allocation, DeviceNode, Mount, place

EXPRESSIBLE = frozenset({"bind", "rbind", "private", "rprivate", "rw", "ro"})
"""Mount options that a kubelet's mount always has (rbind, rprivate), or that the API expresses."""
BINDS = frozenset({"", "none", "bind"})
"""Types of a bind mount. Any other type mounts a separate file system."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The edits of one name."""

    name: str
    file: str
    """The spec's file."""
    common: spec.Edits
    """The spec-wide edits, which a container gets once, however many of the spec's devices it has."""
    own: spec.Edits
    """The device's edits."""


@dataclass(frozen=True, slots=True)
class HostNode:
    """A file of the host."""

    type: str
    """``b`` or ``c``; empty for other files."""
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


Look = Callable[[str], HostNode | None]
"""The file at a path of the host, links followed; None if there is none."""


def expand(allocation: Allocation, resolved: Iterable[Resolved], look: Look) -> Allocation:
    """The allocation with its names expanded. Raises CdiError, which lists every inexpressible edit.

    As a runtime applies CDI edits last, a spec has precedence over the rest of the allocation, and a later name over an
    earlier one (Apply, pkg/cdi/container-edits.go). A spec's common edits come once, before its devices'.
    """
    env = dict(allocation.env)
    given: tuple[DeviceNode | Mount, ...] = (*allocation.device_nodes, *allocation.mounts)
    placed: dict[str, DeviceNode | Mount] = {place(str(one.container_path)): one for one in given}
    wrong: list[str] = []
    seen: set[str] = set()
    for one in resolved:
        edits = (one.own,) if one.file in seen else (one.common, one.own)
        seen.add(one.file)
        for edit in edits:
            wrong += [f"{one.name} ({one.file}): {text}" for text in _inexpressible(edit, look)]
            env |= {name: value for name, _, value in (text.partition("=") for text in edit.env)}
            try:
                placed |= {place(str(each.container_path)): each for each in _expressible(edit)}
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


def _expressible(edits: spec.Edits) -> Iterator[DeviceNode | Mount]:
    for node in edits.deviceNodes:
        if node.permissions != "none":
            permissions = "".join(dict.fromkeys(node.permissions)) or "rwm"
            yield DeviceNode(node.hostPath or node.path, node.path, permissions)
    for mount in edits.mounts:
        last = [option for option in ("rw", *mount.options) if option in {"ro", "rw"}][-1]  # it counts: mount(8)
        yield Mount(mount.hostPath, mount.containerPath, read_only=last == "ro")


def _inexpressible(edits: spec.Edits, look: Look) -> Iterator[str]:
    """Describes the edits that no kubelet can pass on."""
    for hook in edits.hooks:
        yield f"its hook {hook.hookName} {hook.path} can't be expanded"
    for net in edits.netDevices:
        yield f"its network device {net.hostInterfaceName} can't be expanded"
    if edits.intelRdt is not None:
        yield "its intelRdt can't be expanded"
    if groups := [str(group) for group in edits.additionalGids if group]:  # 0 is ignored, as SPEC.md says
        yield f"its additionalGids {', '.join(groups)} can't be expanded"
    for mount in edits.mounts:
        # A bind mount is the only one that a kubelet passes on.
        if mount.type not in BINDS:
            yield f"its mount {mount.containerPath} of type {mount.type} can't be expanded: only the host's files can"
        if options := ", ".join(option for option in mount.options if option not in EXPRESSIBLE):
            yield f"its mount {mount.containerPath} has options that the API can't say: {options}"
    for node in edits.deviceNodes:
        yield from _unlike_host(node, look)


def _unlike_host(node: spec.SpecNode, look: Look) -> Iterator[str]:
    """Describes how the spec's node differs from the host's, because a kubelet passes the host's node on unchanged."""
    path = node.hostPath or node.path
    if node.permissions == "none":
        yield f"its device node {node.path} has no permissions at all, which the API can't say"
    if node.type == "p":
        yield f"its device node {node.path} is a named pipe, which the API can't say"
        return
    wanted = {
        "type": "c" if node.type == "u" else node.type or None,  # u is an unbuffered character device: mknod(1)
        "major": node.major or None,  # 0 is unset, as in Go
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
        yield f"its device node {path} is missing, so it can't be compared with the spec"
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

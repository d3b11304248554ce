"""Groups of generic-device-plugin that need a match: USB devices, directories, and paths that belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpgateway.sysfs import is_glob
from dpgateway_chardev.importers.generic_config import DevicePaths, Path
from dpgateway_chardev.importers.paths import DIRECTORIES, directory_of, in_dev
from dpgateway_chardev.patterns import is_lasting

_OF_LINKS = {"disk": "block", "mapper": "block", "serial": "tty", "v4l": "video4linux"}
"""The subsystems of the targets of udev's links, by directory (systemd, rules.d)."""
_DIGITS = re.compile(r"(\d+)")


def usb(groups: Sequence[DevicePaths], name: str) -> dict[str, Any] | None:
    """Options for groups of USB devices. All matches of a group are one device, with all their nodes; None if a match
    can't tell several groups apart.
    """
    sticks = [one for group in groups for one in group.sticks]
    matches: list[dict[str, Any]] = []
    for one in sticks:
        ids = {"idVendor": f"{int(one.vendor, 16):04x}", "idProduct": f"{int(one.product, 16):04x}"}
        matches.append({"subsystem": "usb", "attr": ids | ({"serial": {"exact": one.serial}} if one.serial else {})})
    options: dict[str, Any] = {"match": matches}
    if len(groups) == 1:
        return options | {"group": name}
    # several groups need a property that tells them apart: a serial number each, or a model each
    if len(sticks) == len(groups) and all(one.serial for one in sticks):
        return options
    if len(sticks) == len({(one.vendor, one.product) for one in sticks}) == len(groups):
        return options | {"group": "{attr:idVendor}:{attr:idProduct}"}
    return None


def directories(group: DevicePaths, found: Sequence[bool]) -> dict[str, Any]:
    """Options for one device with all nodes in the directories of a group, and its other nodes; ``found``: which of its
    paths are directories. Its id is all of its paths.
    """
    matches, nodes, mounts, rest = list[Any](), list[Any](), list[Any](), list[Any]()
    for path, is_directory in zip(group.paths, found, strict=True):
        where = path.path.strip().rstrip("/")
        if not is_directory:
            given = _given(path, _literal(where), _literal(_inside(path)))
            (mounts if path.type == "Mount" else rest).append(given)
            continue
        subsystem = DIRECTORIES.get(directory_of(where), "*")
        inside = path.mountPath.strip()
        inside += where.rpartition("/")[2] if inside.endswith("/") else ""
        node: dict[str, Any] = {"host_path": "{devnode}"} | ({"container_path": f"{inside}/{{name}}"} if inside else {})
        nodes.append(node | {"permissions": path.permissions or "mrw"})
        matches.append({"subsystem": subsystem, "env": {"DEVNAME": f"{where.removeprefix('/dev/')}/*"}})
    name = "".join(path.path.strip().rstrip("/") for path in group.paths).removeprefix("/dev/")
    options: dict[str, Any] = {"match": matches[0] if len(matches) == 1 else matches, "group": _literal(name)}
    if nodes == [{"host_path": "{devnode}", "permissions": "mrw"}] * len(nodes) and not rest:
        options["permissions"] = "mrw"
    elif len(matches) == 1:
        options["nodes"] = [*nodes, *rest]
    else:
        options["match"] = [match | {"nodes": [node, *rest]} for match, node in zip(matches, nodes, strict=True)]
    return options | ({"mounts": mounts} if mounts else {})


def together(groups: Sequence[DevicePaths]) -> dict[str, Any] | None:
    """Options for groups of several paths that differ only in numbers; None for others.

    The object of a node that isn't optional stands for all: ``/dev/snd/controlC1`` and ``/dev/snd/pcmC1D0c`` are the
    device of ``controlC1``, with the nodes ``/dev/snd/controlC{number}`` and ``/dev/snd/pcmC{number}D0c``. Its id is
    all of its paths, unless some of them are optional.
    """
    columns = list(zip(*(group.paths for group in groups), strict=False))
    kinds = [{(it.type, it.permissions, it.readOnly, it.optional) for it in one} for one in columns]
    alike = len({len(group.paths) for group in groups}) == 1 and all(len(some) == 1 for some in kinds)
    if not alike or any(is_glob(one.path) for column in columns for one in column):
        return None
    anchors = next((column for column in columns if all(map(_by_name, column))), None)
    if anchors is None:
        return None
    first = [one.path.strip() for one in anchors]
    numbers = [_DIGITS.split(path)[-2] if path[-1].isdigit() else "" for path in first]
    nodes, mounts, paths = list[Any](), list[Any](), ""
    for column in columns:
        host = _template([one.path.strip() for one in column], numbers)
        inside = _template([_inside(one) for one in column], numbers)
        if host is None or inside is None:
            return None
        (mounts if column[0].type == "Mount" else nodes).append(_given(column[0], host, inside))
        paths += host
    options: dict[str, Any] = {"match": _match(first), "nodes": nodes}
    if not any(column[0].optional for column in columns):
        options["group" if len(groups) == 1 else "id"] = paths.removeprefix("/dev/")
    return options | ({"mounts": mounts} if mounts else {})


def apart(groups: Sequence[DevicePaths]) -> dict[str, Any] | None:
    """Options for groups of several paths that have nothing in common: an alternative of match for each group, whose
    first node with an object that isn't optional stands for it, else its first link of udev; None if there is none.
    """
    if any(is_glob(one.path) or one.type == "Mount" for group in groups for one in group.paths):
        return None
    found: list[str] = []
    for group in groups:
        named = [one.path.strip() for one in group.paths if _by_name(one)]
        links = [path for one in group.paths if not one.optional and of_link(path := one.path.strip())]
        found += (named or links)[:1]
    if len(set(found)) < len(groups):
        return None
    nodes = [
        [_given(one, _literal(one.path.strip()), _literal(_inside(one))) for one in group.paths] for group in groups
    ]
    matches = [(of_link(path) or _match([path])) for path in found]
    if len(groups) == 1:
        whole = "".join(one.path.strip() for one in groups[0].paths).removeprefix("/dev/")
        # with optional paths the plugin's ids change, and ours don't
        name = {} if any(one.optional for one in groups[0].paths) else {"group": _literal(whole)}
        return {"match": matches[0], "nodes": nodes[0]} | name
    return {
        "match": [match | {"nodes": given} for match, given in zip(matches, nodes, strict=True)],
        "id": "{env:DEVNAME}",
    }


def of_link(path: str) -> dict[str, Any] | None:
    """The match of the objects whose nodes have a link of udev at this path or pattern; None for another path."""
    directory, _, name = path.removeprefix("/dev/").partition("/")
    if not in_dev(path) or not (is_lasting(path) or (directory == "mapper" and name != "control")):
        return None
    subsystem = _OF_LINKS.get(directory, DIRECTORIES.get(directory_of(path), "*"))
    return {"subsystem": subsystem, "symlink": path.replace("[^", "[!") if is_glob(path) else {"exact": path}}


def optional_paths(group: DevicePaths, name: str) -> dict[str, Any] | None:
    """Options for one device with its present paths, if all are optional; None otherwise."""
    if not all(one.optional and has_object(one, optional=True) and not is_glob(one.path) for one in group.paths):
        return None
    nodes = [_given(one, _host(one), _literal(one.mountPath.strip() and _inside(one))) for one in group.paths]
    matches = [
        _matched(one) | {"nodes": [{key: value for key, value in node.items() if value and key != "optional"}]}
        for one, node in zip(group.paths, nodes, strict=True)
    ]
    return {"match": matches, "group": name}


def beside(group: DevicePaths) -> dict[str, Any] | None:
    """Options for a device of each match of a pattern, with other nodes that many devices share; None for others."""
    patterns = [one for one in group.paths if is_glob(one.path)]
    others = [one for one in group.paths if not is_glob(one.path)]
    if len(patterns) != 1 or not has_object(patterns[0]) or any(one.limit < 2 or one.type == "Mount" for one in others):
        return None
    nodes, name = list[Any](), ""
    for one in group.paths:
        path = one.path.strip()
        host = _host(one) if one is patterns[0] else _literal(path)
        if one is not patterns[0]:
            name += host
        else:
            name += "/dev/{env:DEVNAME}" if of_link(path) is None else f"/dev/{{regex:{_symlink(path)}#/dev/(.*)}}"
        nodes.append(_given(one, host, _inside_of_match(one) if one.mountPath.strip() else host))
    return {
        "match": _matched(patterns[0]),
        "id": name.removeprefix("/dev/"),
        "nodes": nodes,
    }


def combined(group: DevicePaths) -> dict[str, Any] | None:
    """Options for devices of the first matches of all paths, the second ones and so on; None for others. Each match has
    to be there, and to be in one device only.
    """
    if not any(is_glob(one.path) for one in group.paths):
        return None
    if any(one.limit > 1 or not has_object(one) for one in group.paths):
        return None
    nodes = [_given(one, _host(one), _inside_of_match(one)) for one in group.paths]
    matches = [_matched(one) | {"nodes": [node]} for one, node in zip(group.paths, nodes, strict=True)]
    return {"match": matches, "group": {"each": True}}


def _inside_of_match(one: Path) -> str:
    inside = _literal(one.mountPath.strip())
    return f"{inside}{{name}}" if inside.endswith("/") else inside or _host(one)


def has_object(one: Path, *, optional: bool = False) -> bool:
    """Whether match can find the node's object: by the kernel's name, or by udev's link."""
    return one.type != "Mount" and one.optional == optional and in_dev(one.path)


def _by_name(one: Path) -> bool:
    return has_object(one) and of_link(one.path.strip()) is None


def _matched(one: Path) -> dict[str, Any]:
    """The match of the object of a path, or of each object of a pattern."""
    path = one.path.strip()
    return of_link(path) or _match([path.replace("[^", "[!")])


def _host(one: Path) -> str:
    """The node of an object that is matched by this path, by the name that the plugin gives it."""
    path = one.path.strip()
    if of_link(path) is None:
        return "{devnode}"
    return _symlink(path) if is_glob(path) else _literal(path)


def _symlink(pattern: str) -> str:
    return f"{{symlink:{_literal(pattern.replace('[^', '[!'))}}}"


def _match(paths: Sequence[str]) -> dict[str, Any]:
    names = [path.removeprefix("/dev/") for path in paths]
    subsystem = DIRECTORIES.get(directory_of(paths[0]), "*")
    return {"subsystem": subsystem, "kernel": [name.rpartition("/")[2] for name in names], "env": {"DEVNAME": names}}


def _inside(path: Path) -> str:
    host, inside = path.path.strip(), path.mountPath.strip() or path.path.strip()
    return inside + host.rpartition("/")[2] if inside.endswith("/") else inside


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _template(texts: Sequence[str], numbers: Sequence[str]) -> str | None:
    """One template for all texts, with ``{number}`` in place of each text's number; None if they differ elsewhere."""
    parts = [_DIGITS.split(text) for text in texts]
    if len({len(one) for one in parts}) > 1:
        return None
    whole = ""
    for column in zip(*parts, strict=True):
        if len(set(column)) == 1:
            whole += _literal(column[0])
        elif list(column) == list(numbers):
            whole += "{number}"
        else:
            return None
    return whole


def _given(path: Path, host: str, inside: str) -> Any:  # noqa: ANN401  an entry of nodes or of mounts
    if path.type == "Mount":
        return {"host_path": host, "container_path": inside, "read_only": path.readOnly}
    node: dict[str, Any] = {"host_path": host} | ({"container_path": inside} if inside != host else {})
    return node | {"permissions": path.permissions or "mrw"} | ({"optional": True} if path.optional else {})

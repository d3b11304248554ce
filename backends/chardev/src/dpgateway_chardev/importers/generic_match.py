"""Groups of generic-device-plugin that need a match: USB devices, directories, and paths that belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpgateway.sysfs import is_glob
from dpgateway_chardev.importers.generic_config import DevicePaths, Path
from dpgateway_chardev.importers.paths import DIRECTORIES, directory_of, in_dev
from dpgateway_chardev.patterns import is_lasting

_SERIAL_LINK = re.compile(r"/dev/serial/by-id/usb-(?P<serial>.+)-if(?P<interface>[0-9a-f]{2})(-port(?P<port>\d+))?")
_VIDEO_LINK = re.compile(r"/dev/v4l/by-id/usb-(?P<serial>.+)-video-index(?P<index>\d+)")
_SERIAL_PATH = re.compile(r"/dev/serial/by-path/(?P<path>.+?)(-port(?P<port>\d+))?")
_VIDEO_PATH = re.compile(r"/dev/v4l/by-path/(?P<path>.+)-video-index(?P<index>\d+)")
_DRM_PATH = re.compile(r"/dev/dri/by-path/(?P<path>.+)-(?P<kind>card|render)")
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
    matches, nodes, more = list[Any](), list[Any](), list[Any]()
    for path, is_directory in zip(group.paths, found, strict=True):
        where = path.path.strip().rstrip("/")
        if not is_directory:
            more.append(_given(path, _literal(where), _literal(_inside(path))))
            continue
        subsystem = DIRECTORIES.get(directory_of(where), "*")
        inside = path.mountPath.strip()
        inside += where.rpartition("/")[2] if inside.endswith("/") else ""
        node: dict[str, Any] = {"host_path": "{devnode}"} | ({"container_path": f"{inside}/{{name}}"} if inside else {})
        nodes.append(node | {"permissions": path.permissions or "mrw"})
        matches.append({"subsystem": subsystem, "env": {"DEVNAME": f"{where.removeprefix('/dev/')}/*"}})
    mounts = [one for one, path in zip(more, _others(group, found), strict=True) if path.type == "Mount"]
    rest = [one for one, path in zip(more, _others(group, found), strict=True) if path.type != "Mount"]
    name = "".join(path.path.strip().rstrip("/") for path in group.paths).removeprefix("/dev/")
    options: dict[str, Any] = {"match": matches[0] if len(matches) == 1 else matches, "group": _literal(name)}
    if nodes == [{"host_path": "{devnode}", "permissions": "mrw"}] * len(nodes) and not rest:
        options["permissions"] = "mrw"
    elif len(matches) == 1:
        options["nodes"] = [*nodes, *rest]
    else:
        options["match"] = [match | {"nodes": [node, *rest]} for match, node in zip(matches, nodes, strict=True)]
    return options | ({"mounts": mounts} if mounts else {})


def _others(group: DevicePaths, found: Sequence[bool]) -> list[Path]:
    return [path for path, is_directory in zip(group.paths, found, strict=True) if not is_directory]


def together(groups: Sequence[DevicePaths]) -> dict[str, Any] | None:
    """Options for groups of several paths that differ only in numbers; None for others.

    The object of a node that isn't optional stands for all: ``/dev/snd/controlC1`` and ``/dev/snd/pcmC1D0c`` are the
    device of ``controlC1``, with the nodes ``/dev/snd/controlC{number}`` and ``/dev/snd/pcmC{number}D0c``. Its id is
    all of its paths, unless some of them are optional.
    """
    columns = list(zip(*(group.paths for group in groups), strict=False))
    alike = len({len(group.paths) for group in groups}) == 1 and all(len(set(map(_kind, one))) == 1 for one in columns)
    if not alike or any(is_glob(one.path) for column in columns for one in column):
        return None
    anchors = next((column for column in columns if all(map(has_object, column))), None)
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
    first node with an object that isn't optional stands for it, else its first link whose name tells the object; None
    if there is none.
    """
    if any(is_glob(one.path) or one.type == "Mount" for group in groups for one in group.paths):
        return None
    anchors = [_anchor(group) for group in groups]
    found = [path for path in anchors if path]
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


def _anchor(group: DevicePaths) -> str:
    nodes = (one.path.strip() for one in group.paths if has_object(one))
    links = (path for one in group.paths if not one.optional and of_link(path := one.path.strip()))
    return next(nodes, "") or next(links, "")


def of_link(path: str) -> dict[str, Any] | None:
    """The match of the object whose node udev's link leads to; None for a link whose name doesn't tell it. Source:
    systemd, rules.d/60-serial.rules, 60-persistent-v4l.rules, 60-drm.rules.
    """
    if found := _SERIAL_LINK.fullmatch(path):
        return _tty(_of_usb(found["serial"], ID_USB_INTERFACE_NUM=found["interface"]), found["port"])
    if found := _SERIAL_PATH.fullmatch(path):
        return _tty(_of_path(found["path"]), found["port"])
    if found := _VIDEO_LINK.fullmatch(path):
        return _video(_of_usb(found["serial"]), found["index"])
    if found := _VIDEO_PATH.fullmatch(path):
        return _video(_of_path(found["path"]), found["index"])
    if found := _DRM_PATH.fullmatch(path):
        # connectors have the path of their card, and no node
        name = {"card": "dri/card*", "render": "dri/renderD*"}[found["kind"]]
        return {"subsystem": "drm", "env": _of_path(found["path"]) | {"DEVNAME": name}}
    return None


def _tty(env: dict[str, Any], port: str | None) -> dict[str, Any]:
    return {"subsystem": "tty", "env": env} | ({"attrs": {"port_number": {"exact": port}}} if port else {})


def _video(env: dict[str, Any], index: str) -> dict[str, Any]:
    return {"subsystem": "video4linux", "kernel": "video*", "env": env, "attr": {"index": {"exact": index}}}


def _of_path(path: str) -> dict[str, Any]:
    return {"ID_PATH_WITH_USB_REVISION" if "-usbv" in path else "ID_PATH": {"exact": path}}


def _of_usb(serial: str, **more: str) -> dict[str, Any]:
    return {key: {"exact": value} for key, value in {"ID_BUS": "usb", "ID_SERIAL": serial, **more}.items()}


def whichever(group: DevicePaths, name: str) -> dict[str, Any] | None:
    """Options for a device of those of its paths that are there, all of which are optional; None if it has others."""
    if not all(one.optional and has_object(one, optional=True) and not is_glob(one.path) for one in group.paths):
        return None
    nodes = [_given(one, "{devnode}", _literal(one.mountPath.strip() and _inside(one))) for one in group.paths]
    matches = [
        _match([one.path.strip()])
        | {"nodes": [{key: value for key, value in node.items() if value and key != "optional"}]}
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
        host = "{devnode}" if one is patterns[0] else _literal(one.path.strip())
        name += "/dev/{env:DEVNAME}" if one is patterns[0] else host
        inside = one.mountPath.strip() + ("{name}" if one.mountPath.strip().endswith("/") else "")
        nodes.append(_given(one, host, inside or host))
    return {
        "match": _match([patterns[0].path.strip().replace("[^", "[!")]),
        "id": name.removeprefix("/dev/"),
        "nodes": nodes,
    }


def has_object(one: Path, *, optional: bool = False) -> bool:
    """Whether match can find the node's object, by the kernel's name: udev's links have none."""
    return one.type != "Mount" and one.optional == optional and in_dev(one.path) and not is_lasting(one.path.strip())


def _match(paths: Sequence[str]) -> dict[str, Any]:
    names = [path.removeprefix("/dev/") for path in paths]
    subsystem = DIRECTORIES.get(directory_of(paths[0]), "*")
    return {"subsystem": subsystem, "kernel": [name.rpartition("/")[2] for name in names], "env": {"DEVNAME": names}}


def _kind(path: Path) -> tuple[object, ...]:
    return path.type, path.permissions, path.readOnly, path.optional


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

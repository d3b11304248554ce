"""Groups of generic-device-plugin that need a match: USB devices, directories, and paths that belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpgateway.sysfs import is_glob
from dpgateway_chardev.importers.generic_config import DevicePaths, Path
from dpgateway_chardev.patterns import is_lasting

DIRECTORIES = {"/dev/dri": "drm", "/dev/input": "input", "/dev/snd": "sound"}
"""The subsystems with a directory of their own. For the directory a container runtime gives all nodes in it."""
OTHER_DIRECTORIES = frozenset({"/dev/bus/usb", "/dev/infiniband", "/dev/mapper", "/dev/net", "/dev/vfio"})
"""Directories that mix subsystems, or nodes of several devices."""
_DIGITS = re.compile(r"(\d+)")


def usb(groups: Sequence[DevicePaths], name: str) -> dict[str, Any] | None:
    """Options for groups of USB devices. All matches of a group are one device, with all their nodes; None if a match
    can't tell several groups apart.
    """
    sticks = [one for group in groups for one in group.usb]
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


def directory(path: Path) -> dict[str, Any]:
    """Options for one device with all nodes in a directory. The directory's name is its id."""
    where = path.path.rstrip("/")
    name = where.removeprefix("/dev/")
    match = {"subsystem": DIRECTORIES[where], "env": {"DEVNAME": f"{name}/*"}}
    return {"match": match, "group": name, "permissions": path.permissions or "mrw"}


def together(groups: Sequence[DevicePaths]) -> dict[str, Any] | None:
    """Options for groups of several paths that differ only in numbers; None for others.

    The object of the first node stands for all: ``/dev/snd/controlC1`` and ``/dev/snd/pcmC1D0c`` are the device of
    ``controlC1``, with the nodes ``/dev/snd/controlC{number}`` and ``/dev/snd/pcmC{number}D0c``. Its id is all of its
    paths, unless some of them are optional.
    """
    columns = list(zip(*(group.paths for group in groups), strict=False))
    alike = len({len(group.paths) for group in groups}) == 1 and all(len(set(map(_kind, one))) == 1 for one in columns)
    if not alike or any(is_glob(one.path) for column in columns for one in column):
        return None
    first = [one.path.strip() for one in columns[0]]
    # match finds an object by the first node's name, and udev's links have no object
    known = all(path.startswith("/dev/") and not is_lasting(path) for path in first)
    if columns[0][0].type == "Mount" or columns[0][0].optional or not known:
        return None
    numbers = [_DIGITS.split(path)[-2] if path[-1].isdigit() else "" for path in first]
    nodes, mounts, paths = list[Any](), list[Any](), ""
    for column in columns:
        host = _template([one.path.strip() for one in column], numbers)
        inside = _template([_inside(one) for one in column], numbers)
        if host is None or inside is None:
            return None
        (nodes if column[0].type == "Device" else mounts).append(_given(column[0], host, inside))
        paths += host
    names = [path.removeprefix("/dev/") for path in first]
    subsystem = DIRECTORIES.get(first[0].rpartition("/")[0], "*")
    match = {"subsystem": subsystem, "kernel": [name.rpartition("/")[2] for name in names]}
    options: dict[str, Any] = {"match": match | {"env": {"DEVNAME": names}}, "nodes": nodes}
    if not any(column[0].optional for column in columns):
        options["group" if len(groups) == 1 else "id"] = paths.removeprefix("/dev/")
    return options | ({"mounts": mounts} if mounts else {})


def _kind(path: Path) -> tuple[object, ...]:
    return path.type, path.permissions, path.readOnly, path.optional


def _inside(path: Path) -> str:
    host, inside = path.path.strip(), path.mountPath.strip() or path.path.strip()
    return inside + host.rpartition("/")[2] if inside.endswith("/") else inside


def _template(texts: Sequence[str], numbers: Sequence[str]) -> str | None:
    """One template for all texts, with ``{number}`` in place of each text's number; None if they differ elsewhere."""
    parts = [_DIGITS.split(text) for text in texts]
    if len({len(one) for one in parts}) > 1:
        return None
    whole = ""
    for column in zip(*parts, strict=True):
        if len(set(column)) == 1:
            whole += column[0].replace("{", "{{").replace("}", "}}")
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

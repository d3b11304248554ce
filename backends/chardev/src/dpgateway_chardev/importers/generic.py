"""generic-device-plugin: its groups of paths and of USB devices, as paths or match of this driver.

It has the SHA-1 of a number and of all paths for an id, so that no id can be kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpgateway.importing import Imported, Lost, Place, Resource, Source, Written
from dpgateway.sysfs import is_glob
from dpgateway_chardev.importers import DRIVER, RUNNING
from dpgateway_chardev.importers.generic_config import Device, Group, Path, Usb, configured

_DIRECTORIES = ("/dev/snd", "/dev/dri", "/dev/input", "/dev/bus/usb", "/dev/infiniband", "/dev/vfio")
"""Whose nodes a container runtime gives all, when it is told to give the directory."""


def generic_device_plugin(source: Source) -> Imported:
    """What is written instead of its configuration. Raises InvalidConfiguration."""
    whole = configured(source)
    converted = [
        _Converted(f"{whole.domain}/{device.name.strip()}", written, device) for written, device in whole.devices
    ]
    resources = tuple(resource for one in converted if (resource := one.resource()) is not None)
    ids = Lost(whole.devices[0][0].place, "the ids", f"there they are SHA-1 sums of paths; {RUNNING}")
    return Imported(resources, (ids, *(lost for one in converted for lost in one.lost)))


class _Converted:
    """A device of its, and what of it is ``lost``."""

    def __init__(self, name: str, written: Written, device: Device) -> None:
        self._name, self._written, self._device = name, written, device
        self.lost: list[Lost] = []

    def resource(self) -> Resource | None:
        options = self._options()
        if options is None:
            return None
        counts = {group.count or 1 for group in self._device.groups}
        if len(counts) > 1:
            self._lose(
                self._at("groups"), "different counts", f"shares hold for all devices; {min(counts)} is the least"
            )
        more = {"shares": min(counts)} if min(counts) > 1 else {}
        return Resource(self._name, self._at(), DRIVER, options, more)

    def _options(self) -> dict[str, Any] | None:
        groups = list(enumerate(self._device.groups))
        usb = [group for _, group in groups if group.usb]
        if usb:
            for number, group in groups:
                if group.paths:
                    self._lose(self._at("groups", number), "paths", "a resource has either paths or USB devices")
            return self._usb(usb)
        simple = [(number, group.paths[0]) for number, group in groups if self._is_simple(number, group)]
        return self._paths(simple) if simple else None

    def _usb(self, groups: Sequence[Group]) -> dict[str, Any]:
        """All that a group finds is one device there, with all its nodes."""
        sticks = [one for group in groups for one in group.usb]
        options: dict[str, Any] = {"match": [_match(one) for one in sticks]}
        if len(groups) == 1:
            return options | {"group": self._device.name.strip()}
        alone = len(sticks) == len(groups)
        if alone and all(one.serial for one in sticks):
            return options
        if alone and len({(one.vendor, one.product) for one in sticks}) == len(groups):
            return options | {"group": "{attr:idVendor}:{attr:idProduct}"}
        self._lose(self._at("groups"), "several USB devices as one", "match can't tell these groups apart; each is one")
        return options

    def _is_simple(self, number: int, group: Group) -> bool:
        place = self._at("groups", number)
        first = group.paths[0]
        if len(group.paths) > 1:
            self._lose(place, f"the group of {first.path}", "paths that belong together need a match of what they are")
        elif first.type == "Mount":
            self._lose(place, f"the mount {first.path}", "a device needs a node, or something in sysfs")
        elif first.path.rstrip("/") in _DIRECTORIES:
            self._lose(place, f"the directory {first.path}", "a device is a node; use match and group for all in it")
        elif not _in_dev(first.path):
            self._lose(place, first.path, "only nodes in /dev are offered")
        else:
            return True
        return False

    def _paths(self, simple: Sequence[tuple[int, Path]]) -> dict[str, Any]:
        options: dict[str, Any] = {"paths": list(dict.fromkeys(_glob(path.path.strip()) for _, path in simple))}
        first = simple[0][1]
        for number, path in simple:
            if path.permissions != first.permissions:
                why = f"they hold for all devices; {first.permissions} is what the first group has"
                self._lose(self._at("groups", number), f"permissions {path.permissions}", why)
            if path.mountPath.strip() != first.mountPath.strip():
                why = "container_path holds for all devices; it is that of the first group"
                self._lose(self._at("groups", number), f"mountPath {path.mountPath or path.path}", why)
        options["permissions"] = first.permissions
        if inside := first.mountPath.strip():
            options["container_path"] = f"{inside}{{name}}" if inside.endswith("/") else inside
        return options

    def _at(self, *steps: object) -> Place:
        return self._written.at(*steps)

    def _lose(self, place: Place, what: str, why: str) -> None:
        self.lost.append(Lost(place, what, why, self._name))


def _match(usb: Usb) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        key: f"{int(text, 16):04x}" for key, text in (("idVendor", usb.vendor), ("idProduct", usb.product))
    }
    return {"subsystem": "usb", "attr": attributes | ({"serial": {"exact": usb.serial}} if usb.serial else {})}


def _in_dev(path: str) -> bool:
    parts = path.strip().split("/")
    return path.strip().startswith("/dev/") and not {"", ".", ".."} & set(parts[1:])


def _glob(path: str) -> str:
    """Go's fs.Glob has ``[^...]`` for what isn't meant, and no ``**``."""
    if not is_glob(path):
        return path
    return re.sub(r"\*+", "*", path.replace("[^", "[!"))

"""generic-device-plugin: its groups of paths and of USB devices, as paths or match of this driver.

Its ids are SHA-1 sums of a number and all paths of a group. A device whose own id is these paths can have shares with
the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpgateway.importing import Imported, ImportedResource, NotKept, Place, Source, Written
from dpgateway.sysfs import is_glob
from dpgateway_chardev.importers import DRIVER, RUNNING
from dpgateway_chardev.importers.generic_config import DevicePaths, GenericDevice, Path, configured
from dpgateway_chardev.importers.generic_match import DIRECTORIES, OTHER_DIRECTORIES, directory, together, usb

_IDS = "{sha1:{share}/dev/{id}}"
"""Source: deviceplugin/path.go, discoverPath. The first path is one below /dev, and an id is written without that."""


def generic_device_plugin(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    whole = configured(source)
    converted = [
        _GenericResource(f"{whole.domain}/{device.name.strip()}", written, device) for written, device in whole.devices
    ]
    resources = tuple(resource for one in converted if (resource := one.resource()) is not None)
    return Imported(resources, tuple(not_kept for one in converted for not_kept in one.not_kept))


class _GenericResource:
    """Converts one of its devices into a resource, and collects the settings that are ``not_kept``."""

    def __init__(self, name: str, written: Written, device: GenericDevice) -> None:
        self._name, self._written, self._device = name, written, device
        self.not_kept: list[NotKept] = []

    def resource(self) -> ImportedResource | None:
        options = self._options()
        if options is None:
            return None
        counts = {group.count or 1 for group in self._device.groups}
        if len(counts) > 1:
            self._lose(
                self._at("groups"), "different counts", f"shares hold for all devices; {min(counts)} is the least"
            )
        if why := self._other_ids(options):
            more: dict[str, Any] = {"shares": min(counts)} if min(counts) > 1 else {}
            self._lose(self._at(), "the ids", f"{why}; {RUNNING}")
        else:
            more = {"shares": {"count": min(counts), "ids": _IDS}}
        return ImportedResource(self._name, self._at(), DRIVER, options, more)

    def _other_ids(self, options: dict[str, Any]) -> str:
        """Why devices can't keep their ids; empty if they can."""
        if "paths" in options:
            return ""
        if any(group.usb for group in self._device.groups):
            return "there they are made of the numbers that USB devices get anew at each plug"
        if any(path.optional for group in self._device.groups for path in group.paths):
            return "there they are made of what is there, so they change when an optional path comes or goes"
        return ""

    def _options(self) -> dict[str, Any] | None:
        groups = self._device.groups
        if any(group.usb for group in groups):
            return self._usb()
        if len(groups) == len(groups[0].paths) == 1 and groups[0].paths[0].path.rstrip("/") in DIRECTORIES:
            return directory(groups[0].paths[0])
        if any(len(group.paths) > 1 for group in groups) and (options := together(groups)) is not None:
            return options
        alone = [(number, group.paths[0]) for number, group in enumerate(groups) if self._is_alone(number, group)]
        return self._paths(alone) if alone else None

    def _usb(self) -> dict[str, Any] | None:
        for number, group in enumerate(self._device.groups):
            if group.paths:
                self._lose(self._at("groups", number), "paths", "a resource has either paths or USB devices")
        options = usb([group for group in self._device.groups if group.usb], self._device.name.strip())
        if options is None:
            self._lose(self._at("groups"), "groups of USB devices", "match can't tell these groups apart")
        return options

    def _is_alone(self, number: int, group: DevicePaths) -> bool:
        first = group.paths[0]
        what, why = f"the group of {first.path}", ""
        if len(group.paths) > 1:
            why = "paths that belong together are kept if all groups are alike but for their numbers, without globs"
        elif first.type == "Mount":
            what, why = f"the mount {first.path}", "a device needs a node, or something in sysfs"
        elif first.path.rstrip("/") in {*DIRECTORIES, *OTHER_DIRECTORIES}:
            what, why = (
                f"the directory {first.path}",
                "what is in it needs a match of what it is, in a resource of its own",
            )
        elif not _in_dev(first.path):
            what, why = first.path, "only nodes in /dev are offered"
        if why:
            self._lose(self._at("groups", number), what, why)
        return not why

    def _paths(self, alone: Sequence[tuple[int, Path]]) -> dict[str, Any]:
        first = alone[0][1]
        alike = []
        for number, path in alone:
            if (path.permissions, path.mountPath.strip()) == (first.permissions, first.mountPath.strip()):
                alike.append(_glob(path.path.strip()))
            else:
                why = "permissions and container_path hold for all devices; those of the first group are kept"
                self._lose(self._at("groups", number), f"the group of {path.path}", why)
        options: dict[str, Any] = {"paths": list(dict.fromkeys(alike)), "permissions": first.permissions or "mrw"}
        if inside := first.mountPath.strip():
            options["container_path"] = f"{inside}{{name}}" if inside.endswith("/") else inside
        return options

    def _at(self, *steps: object) -> Place:
        return self._written.at(*steps)

    def _lose(self, place: Place, what: str, why: str) -> None:
        self.not_kept.append(NotKept(place, what, why, self._name))


def _in_dev(path: str) -> bool:
    parts = path.strip().split("/")
    return path.strip().startswith("/dev/") and not {"", ".", ".."} & set(parts[1:])


def _glob(path: str) -> str:
    """Converts a pattern of Go's fs.Glob, which negates with ``[^...]`` and has no ``**``."""
    if not is_glob(path):
        return path
    return re.sub(r"\*+", "*", path.replace("[^", "[!"))

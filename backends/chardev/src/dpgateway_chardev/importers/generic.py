"""generic-device-plugin: its groups of paths and of USB devices, as paths or match of this driver.

Its ids are SHA-1 sums of a number and all paths of a group. A device whose own id is these paths can have shares with
the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from dpgateway.importing import Imported, ImportedResource, NotKept, Source, Written
from dpgateway.sysfs import is_glob
from dpgateway_chardev.importers import DRIVER, MOST_SHARES, RUNNING, TOO_MANY, generic_match
from dpgateway_chardev.importers.generic_config import DevicePaths, Path, configured
from dpgateway_chardev.importers.paths import in_dev, is_block, is_directory, why_no_directory

_IDS = "{sha1:{share}/dev/{id}}"
"""Source: deviceplugin/path.go, discoverPath. The first path is one below /dev, and an id is written without that."""

_EMPTY = "it has neither paths nor usb with vendor and product, so the plugin finds no device for it"
_DIRECTORY_BESIDE = "a directory is one device, and the other groups have other ones: write a resource of its own"
_ORDER = (
    "there the first match of each pattern by path is in one device, here the first one by serial number or address"
)
_SEVERAL_PATTERNS = (
    "there the matches of patterns are combined in the order of their names, which each plug changes; write a match, "
    'with group: "{attrs:serial}" or another property that they have in common'
)


def generic_device_plugin(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    whole = configured(source)
    converted = [
        ResourceOfGroups(written, f"{domain.name}/{device.name.strip()}", device.groups, source.dev, domain.warnings)
        for written, device, domain in whole.devices
    ]
    found = (resource for one in converted if (resource := one.resource()) is not None)
    resources = tuple(replace(one, selector=source.selector_at(one.place)) for one in found)
    return Imported(resources, (*whole.not_kept, *(not_kept for one in converted for not_kept in one.not_kept)))


class ResourceOfGroups:
    """Converts groups into a resource, and collects the settings that are ``not_kept``."""

    def __init__(
        self, written: Written, name: str, groups: Sequence[DevicePaths], dev: FilePath, warnings: Sequence[str] = ()
    ) -> None:
        """``name``: the resource's; ``groups``: each is one device; ``dev``: the node's /dev."""
        self._written, self._name, self._dev, self._warnings = written, name, dev, warnings
        self._short, self._number = name.rpartition("/")[2], len(groups)
        self.not_kept: list[NotKept] = []
        # the groups that offer something, and that the driver can offer, by their numbers
        self._groups = {number: one for number, one in enumerate(groups) if one.paths or one.sticks}

    def resource(self) -> ImportedResource | None:
        """With generic-device-plugin's ids, where that can be; None if the driver can't offer the groups."""
        for number in set(range(self._number)) - self._groups.keys():
            self._lose(f"groups[{number}]", _EMPTY, "groups", number)
        options = self.options()
        if options is None:
            return None
        counts = {group.count or 1 for group in self._groups.values()}
        if len(counts) > 1:
            self._lose("different counts", f"shares hold for all devices; {min(counts)} is the least", "groups")
        count = min(*counts, MOST_SHARES)
        if min(counts) > MOST_SHARES:
            self._lose(f"a count of {min(counts)}", TOO_MANY, "groups")
        if options.get("group") == {"each": True}:
            self._lose("the order of matches", _ORDER, "groups")
        if why := self._other_ids(options):
            more: dict[str, Any] = {"shares": count} if count > 1 else {}
            self._lose("the ids", f"{why}; {RUNNING}")
        else:
            more = {"shares": {"count": count, "ids": _IDS}}
        return ImportedResource(self._name, self._written.at(), DRIVER, options, more, self._warnings)

    def _other_ids(self, options: dict[str, Any]) -> str:
        """Why devices can't keep their ids; empty if they can."""
        if "paths" in options:
            return ""
        if any(group.sticks for group in self._groups.values()):
            return "there they are made of the numbers that USB devices get anew at each plug"
        if any(path.optional for group in self._groups.values() for path in group.paths):
            return "there they are made of what is there, so they change when an optional path comes or goes"
        if options.get("group") == {"each": True}:
            return "there they are made of paths that are combined anew at each plug"
        if isinstance(options["match"], list) and options.get("id"):
            return "there they are made of each group's paths, and one template can't say different ones"
        return ""

    def options(self) -> dict[str, Any] | None:
        """The driver's options; None if it can't offer the groups."""
        if not (groups := tuple(self._groups.values())):
            return None
        if any(group.sticks for group in groups):
            for number, group in self._groups.items():
                if group.paths:
                    self._lose("paths", "a resource has either paths or USB devices", "groups", number)
            self._groups = {number: one for number, one in self._groups.items() if one.sticks}
            options = generic_match.usb(list(self._groups.values()), self._short)
            if options is None:
                self._lose("groups of USB devices", "match can't tell these groups apart", "groups")
            return options
        options = self._of_groups(groups)
        if options is None:
            self._groups = {number: one for number, one in self._groups.items() if self._is_alone(number, one)}
            options = self._paths() if self._groups else None
        return options

    def _of_groups(self, groups: Sequence[DevicePaths]) -> dict[str, Any] | None:
        """Options for all groups, whose devices have several nodes; None if that isn't so, or is impossible."""
        found = [is_directory(path.path, self._dev) for path in groups[0].paths]
        if len(groups) == 1 and any(found):
            wrong = (one for one, is_one in zip(groups[0].paths, found, strict=True) if is_one)
            if any(why_no_directory(one.path) for one in wrong):
                return None
            beside = [one for one, is_one in zip(groups[0].paths, found, strict=True) if not is_one]
            return generic_match.directories(groups[0], found) | self._type_of(beside, {"char"})
        if all(len(group.paths) == 1 for group in groups):
            return None
        options = generic_match.together(groups)
        if options is None and len(groups) == 1:
            only = groups[0]
            options = generic_match.optional_paths(only, self._short)
            options = options or generic_match.beside(only) or generic_match.combined(only)
        if options is None and not any(is_directory(path.path, self._dev) for group in groups for path in group.paths):
            options = generic_match.apart(groups)
        return options and options | self._type_of([path for group in groups for path in group.paths])

    def _type_of(self, paths: Sequence[Path], more: Set[str] = frozenset()) -> dict[str, Any]:
        """The option for nodes at these paths, beside those of other types."""
        found = {"block" if is_block(one.path, self._dev) else "char" for one in paths if one.type != "Mount"} | more
        return {} if found <= {"char"} else {"type": "block" if found == {"block"} else "any"}

    def _is_alone(self, number: int, group: DevicePaths) -> bool:
        """Whether ``paths`` can offer the group. Else it is lost, with the reason."""
        first = group.paths[0]
        what, why = f"the group of {first.path}", ""
        if len(group.paths) > 1:
            why = self._why_not_together(group)
        elif first.type == "Mount":
            what, why = f"the mount {first.path}", "a device needs a node, or something in sysfs"
        elif not in_dev(first.path.strip().rstrip("/")):
            what, why = first.path, "only nodes in /dev are offered"
        elif is_directory(first.path, self._dev):
            what, why = f"the directory {first.path}", why_no_directory(first.path) or _DIRECTORY_BESIDE
        if why:
            self._lose(what, why, "groups", number)
        return not why

    def _why_not_together(self, group: DevicePaths) -> str:
        paths, patterns = group.paths, [path for path in group.paths if is_glob(path.path)]
        whole = [path for path in paths if is_directory(path.path, self._dev)]
        reasons: Sequence[tuple[object, str]] = (
            (whole, "; ".join(why for one in whole if (why := why_no_directory(one.path))) or _DIRECTORY_BESIDE),
            (len(patterns) > 1, _SEVERAL_PATTERNS),
            (patterns, "there a path joins as many matches as it has a limit, and here none or all of them"),
            (
                not any(map(generic_match.has_object, paths)),
                "match finds a device by a node that isn't optional and has an object in sysfs, and here is none",
            ),
            (
                any(path.type == "Mount" for path in paths),
                "mounts hold for all devices of a resource, and those of the groups differ: write a resource for each",
            ),
        )
        return next((why for is_so, why in reasons if is_so), "other groups of the resource can't be kept beside it")

    def _paths(self) -> dict[str, Any]:
        first, *_ = (group.paths[0] for group in self._groups.values())
        for number, group in tuple(self._groups.items()):
            path = group.paths[0]
            if (path.permissions, path.mountPath.strip()) != (first.permissions, first.mountPath.strip()):
                why = "permissions and container_path hold for all devices; those of the first group are kept"
                self._lose(f"the group of {path.path}", why, "groups", number)
                del self._groups[number]
        alike = [group.paths[0] for group in self._groups.values()]
        # Go's fs.Glob negates with [^...] and has no **
        globs = [(path, path.replace("[^", "[!")) for path in (one.path.strip() for one in alike)]
        paths = list(dict.fromkeys(re.sub(r"\*+", "*", glob) if is_glob(path) else path for path, glob in globs))
        options: dict[str, Any] = {"paths": paths, "permissions": first.permissions or "mrw"} | self._type_of(alike)
        if inside := first.mountPath.strip():
            options["container_path"] = f"{inside}{{name}}" if inside.endswith("/") else inside
        return options

    def _lose(self, what: str, why: str, *steps: object) -> None:
        """``steps``: the keys and numbers that lead to it in what was written."""
        self.not_kept.append(NotKept(self._written.at(*steps), what, why, self._name))

"""smarter-device-manager: a resource for each device node whose name matches a regular expression.

Source: smarter-project/smarter-device-manager, main.go, server.go, argus.go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path as FilePath

from dpgateway.importing import (
    Imported,
    ImportedResource,
    InvalidConfiguration,
    NotKept,
    Place,
    Problem,
    Source,
    Written,
    typed,
)
from dpgateway_chardev.importers import DRIVER
from dpgateway_chardev.importers.generic_config import Path
from dpgateway_chardev.importers.generic_match import DIRECTORIES, directory

MOST_NAMES = 100_000
"""Limit of names below /dev, because links may form a loop."""
_DEEPEST = 10
_GPU = "nvidia-gpu"
_EXPECTED = "a list of mappings with the keys devicematch, nummaxdevices"
_LITERAL = re.compile(r"\^([\w/-]+)\$")


@dataclass(frozen=True, slots=True)
class Desired:
    """An entry of its list: the devices, and the number of containers that may share each."""

    devicematch: str
    nummaxdevices: int = 0

    def __post_init__(self) -> None:
        try:
            re.compile(self.devicematch)
        except re.error as error:
            raise ValueError(
                f"devicematch: expected a regular expression, found {self.devicematch!r}: {error}"
            ) from error


def smarter_device_manager(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    desired = list(_desired(source))
    if not desired:
        raise source.nothing(_EXPECTED)
    names = sorted(islice(_names(source.dev, ""), MOST_NAMES + 1))
    if len(names) > MOST_NAMES:
        raise InvalidConfiguration([Problem(Place(str(source.dev)), f"more than {MOST_NAMES} names", "a node's /dev")])
    resources: dict[str, ImportedResource] = {}
    not_kept: list[NotKept] = []
    for written, one in desired:
        not_kept += _unknown(written, one, source.dev)
        for name in _found(one, names):
            resource = "smarter-devices/" + re.sub("[^A-Za-z0-9_-]", "_", name)
            if f"/dev/{name}" not in DIRECTORIES and os.path.isdir(source.dev / name):  # noqa: PTH112  pathlib's raises what forbids it
                why = "a container runtime gives all that is in it; match and group say what is in it"
                not_kept.append(NotKept(written.place, f"the directory /dev/{name}", why, resource))
            elif one.nummaxdevices < 1 or resource in resources:
                why = "it offers none of it" if one.nummaxdevices < 1 else "another devicematch takes it, too"
                not_kept.append(NotKept(written.place, f"/dev/{name}", why, resource))
            else:
                more = {"shares": {"count": one.nummaxdevices, "ids": "{share}"}}
                path = Path(f"/dev/{name}", permissions="rw")
                options = directory(path) if path.path in DIRECTORIES else {"paths": [path.path]}
                resources[resource] = ImportedResource(resource, written.place, DRIVER, options, more)
    return Imported(tuple(resources.values()), tuple(not_kept))


def _desired(source: Source) -> Iterator[tuple[Written, Desired]]:
    problems: list[Problem] = []
    for config in source.configs("devicematch"):
        listed = config.below("config") or config  # as the chart's values have it
        for one in listed.value if isinstance(listed.value, list) else ():
            if (desired := typed(one, Desired, problems)) is not None:
                yield one, desired
    if problems:
        raise InvalidConfiguration(problems)


def _found(one: Desired, names: list[str]) -> list[str]:
    """The names that match. A literal name needn't exist."""
    if one.devicematch == _GPU:
        return []
    if literal := _LITERAL.fullmatch(one.devicematch):
        return [literal[1]]
    return [name for name in names if re.search(one.devicematch, name)]


def _unknown(written: Written, one: Desired, dev: FilePath) -> Iterator[NotKept]:
    if one.devicematch == _GPU:
        yield NotKept(written.place, _GPU, "these devices have no node, only the variable NVIDIA_VISIBLE_DEVICES")
    elif not _LITERAL.fullmatch(one.devicematch):
        why = f"each device is a resource of its own, and these are the ones in {dev} now: do this on each kind of node"
        yield NotKept(written.place, f"devices that {one.devicematch} will find", why)


def _names(directory: FilePath, above: str, depth: int = 0) -> Iterator[str]:
    """All names below /dev, including directories, and through links, as the plugin walks there."""
    try:
        inside = [one.name for one in (directory / above).iterdir()]
    except OSError:
        return
    for name in inside:
        yield above + name
        if depth < _DEEPEST and os.path.isdir(directory / above / name):  # noqa: PTH112
            yield from _names(directory, f"{above}{name}/", depth + 1)

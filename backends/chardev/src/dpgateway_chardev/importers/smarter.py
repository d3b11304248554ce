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
    Entries,
    Imported,
    ImportedResource,
    InvalidConfiguration,
    NotKept,
    Place,
    Problem,
    Source,
    Written,
)
from dpgateway_chardev.importers import DRIVER, MOST_SHARES, TOO_MANY
from dpgateway_chardev.importers.generic_config import DevicePaths, Path
from dpgateway_chardev.importers.generic_match import directories
from dpgateway_chardev.importers.paths import is_block, is_directory, why_no_directory

MOST_NAMES = 100_000
"""Limit of names below /dev, because links may form a loop."""
_DEEPEST = 10
_GPU = "nvidia-gpu"
_NO_NODE = "these devices have no node, only the variable NVIDIA_VISIBLE_DEVICES"
_ON_EACH = "do this on each kind of node"
_EXPECTED = "a list of mappings with the keys devicematch, nummaxdevices"
_CLASSES = {"digit": r"\d", "alpha": "A-Za-z", "alnum": "0-9A-Za-z", "lower": "a-z", "upper": "A-Z", "word": r"\w"}
_REPEATED_ANCHOR = re.compile(r"(?<![\\[])([$^])([*+?])")
_LETTER = r"(?:[^\\.+*?()|\[\]{}^$]|\\\W)"
_LITERAL = re.compile(rf"\^({_LETTER}+)\$")
_LINK = re.compile(rf"\^({_LETTER}*/by-[a-z]+/(?:{_LETTER}|\.)+)\$")
"""One of udev's links, in whose name people mean a dot by a dot."""


@dataclass(frozen=True, slots=True)
class Desired:
    """An entry of its list: the devices, and the number of containers that may share each."""

    devicematch: str
    nummaxdevices: int = 0

    def __post_init__(self) -> None:
        try:
            _compiled(self.devicematch)
        except re.error as error:
            raise ValueError(
                f"devicematch: expected a regular expression, found {self.devicematch!r}: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class _Match:
    """A device that an entry finds."""

    written: Written
    path: str
    count: int


def smarter_device_manager(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    desired = Entries.of(source.holding("devicematch"), Desired, source.nothing(_EXPECTED))
    names = sorted(islice(_names(source.dev, ""), MOST_NAMES + 1))
    if len(names) > MOST_NAMES:
        raise InvalidConfiguration([Problem(Place(str(source.dev)), f"more than {MOST_NAMES} names", "a node's /dev")])
    not_kept = list(desired.not_kept)
    last: dict[str, _Match] = {}
    for written, one in desired.read:
        if one.devicematch == _GPU:
            not_kept.append(NotKept(written.place, _GPU, _NO_NODE))
        elif not _literal(one):
            why = f"each device is a resource of its own, and these are the ones in {source.dev} now: {_ON_EACH}"
            not_kept.append(NotKept(written.place, f"devices that {one.devicematch} will find", why))
        for name in _found(one, names):
            resource = "smarter-devices/" + re.sub("[^A-Za-z0-9_-]", "_", name)
            match = _Match(written, f"/dev/{name}", one.nummaxdevices)
            earlier = last.get(resource)
            # The plugin registers both, and the kubelet then has the later one's list.
            if earlier is not None and (earlier.path, earlier.count) != (match.path, match.count):
                what = earlier.path if earlier.path != match.path else f"nummaxdevices of {earlier.count}"
                counts = f"{match.path}, nummaxdevices {match.count}, in line {match.written.place.line}"
                not_kept.append(NotKept(earlier.written.place, what, f"the last match counts: {counts}", resource))
            last[resource] = match

    resources = []
    for resource, match in last.items():
        whole = is_directory(match.path, source.dev)
        why = why_no_directory(match.path) if whole else ""
        if match.count < 1:
            why = "it offers none of it"
        if why:
            what = f"the directory {match.path}" if whole else match.path
            not_kept.append(NotKept(match.written.place, what, why, resource))
            continue
        if match.count > MOST_SHARES:
            what = f"nummaxdevices of {match.count}"
            not_kept.append(NotKept(match.written.at("nummaxdevices"), what, TOO_MANY, resource))
        more = {"shares": {"count": min(match.count, MOST_SHARES), "ids": "{share}"}}
        if whole:
            options = directories(DevicePaths((Path(match.path, permissions="rw"),)), [True])
        else:
            options = {"paths": [match.path]} | ({"type": "block"} if is_block(match.path, source.dev) else {})
        resources.append(ImportedResource(resource, match.written.place, DRIVER, options, more))
    return Imported(tuple(resources), tuple(not_kept))


def _compiled(expression: str) -> re.Pattern[str]:
    """An expression in Go's syntax, which repeats ``^`` and ``$``, too, and has classes such as ``[[:digit:]]``. Raises
    re.error.
    """
    for name, of_python in _CLASSES.items():
        expression = expression.replace(f"[:{name}:]", of_python)
    return re.compile(_REPEATED_ANCHOR.sub(r"(?:\1)\2", expression))


def _found(one: Desired, names: list[str]) -> list[str]:
    """The names that match. A literal name needn't exist."""
    if one.devicematch == _GPU:
        return []
    name = _literal(one)
    if name and _LITERAL.fullmatch(one.devicematch):
        return [name]
    pattern = _compiled(one.devicematch)
    return [each for each in names if pattern.search(each)] or ([name] if name else [])


def _literal(one: Desired) -> str:
    """The only name that is meant; empty for several names."""
    found = _LITERAL.fullmatch(one.devicematch) or _LINK.fullmatch(one.devicematch)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


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

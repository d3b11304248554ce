"""From a file, or a directory of files, to a checked :class:`Document`. Drivers' options stay as they were written.

The files of a directory are one configuration: ``defaults`` and ``kubelet`` hold for all of them, wherever they stand,
so a key that two files set to different values is an error; and so is a resource that is named twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dpgateway.config.files import Written, parse, unreadable
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Steps, did_you_mean, in_order, shown
from dpgateway.config.strict import typed
from dpgateway.config.values import Kubelet, ResourceKeys

OWN = frozenset({"name", "driver"})
"""The keys that only a resource itself can have."""
MISNAMED = frozenset({".yml", ".YAML", ".YML", ".json"})
"""Endings that a directory's files may have in the belief that they are read."""


@dataclass(frozen=True, slots=True)
class File:
    """What one file may say."""

    resources: tuple[Any, ...] = field(default=(), metadata={"help": "the resources to serve"})
    defaults: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "any key of a resource but name and driver, for those that don't set it"},
    )
    kubelet: Kubelet = field(default=Kubelet(), metadata={"help": "where the kubelet is, and how to talk with it"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A resource of the document: as it was written, defaults filled in, and typed (None if it is invalid)."""

    written: Written
    resource: ResourceKeys | None

    @property
    def name(self) -> str:
        return str(self.written.value.get("name"))

    @property
    def driver(self) -> str:
        return str(self.written.value.get("driver"))

    def serves(self, node_name: str) -> bool:
        """Whether the resource is for this node; an invalid one is taken to be."""
        return self.resource is None or any(fnmatchcase(node_name, pattern) for pattern in self.resource.nodes)


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration that is checked in all but its drivers' options."""

    path: Path
    entries: tuple[Entry, ...]
    kubelet: Kubelet
    elsewhere: tuple[Entry, ...] = ()
    """The resources that are for other nodes."""
    node_name: str = ""
    """The node that the entries are for; empty: for any."""
    ignored: tuple[Path, ...] = ()
    """Files of the directory that aren't read, but may have been meant to."""

    @property
    def drivers(self) -> frozenset[str]:
        """The names of the drivers that its resources want."""
        return frozenset(entry.driver for entry in self.entries)

    def for_node(self, node_name: str) -> Document:
        """The same without the resources that are for other nodes."""
        ours = tuple(entry for entry in self.entries if entry.serves(node_name))
        others = tuple(entry for entry in self.entries if not entry.serves(node_name))
        return replace(self, entries=ours, elsewhere=self.elsewhere + others, node_name=node_name)


def load(path: Path) -> Document:
    """The configuration at ``path``, a file or a directory. Raises InvalidConfiguration with all that is wrong."""
    document, problems = read(path)
    if problems:
        raise InvalidConfiguration(problems)
    return document


def read(path: Path) -> tuple[Document, tuple[Problem, ...]]:
    """Like :func:`load`, but returns what can be used together with what is wrong."""
    problems: list[Problem] = []
    files = _parsed(path, problems)
    for file in files:
        typed(file, File, problems)
    whole = _merged(path, files, problems)
    kubelet = typed(whole.below("kubelet"), Kubelet, problems)
    _check_defaults(whole.below("defaults"), problems)
    resources = whole.below("resources")
    entries = tuple(_entry(resources.below(index), problems) for index in range(len(resources.value)))
    _check_names(entries, problems)
    if files and not any("resources" in file.value or _misspelt(file.value) for file in files):
        problems.append(Problem(Place(str(path), key="resources"), "no resources", "a list of resources"))
    return Document(path, entries, kubelet or Kubelet(), ignored=_misnamed(path)), in_order(problems)


def _parsed(path: Path, problems: list[Problem]) -> list[Written]:
    files = []
    for file in _files(path, problems):
        try:
            files.append(parse(file))
        except InvalidConfiguration as error:
            problems.extend(error.problems)
    return files


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    try:
        files = _in_directory(path, {".yaml"})
    except (FileNotFoundError, NotADirectoryError):
        return [path]
    except OSError as error:
        problems.extend(unreadable(error, Place(str(path))).problems)
        return []
    if not files:
        problems.append(Problem(Place(str(path)), "no *.yaml in this directory", "at least one"))
    return files


def _in_directory(path: Path, endings: Set[str]) -> list[Path]:
    # Hidden ones are not for us: a mounted ConfigMap keeps its older versions in ..data.
    return sorted(file for file in path.iterdir() if file.suffix in endings and not file.name.startswith("."))


def _misnamed(path: Path) -> tuple[Path, ...]:
    try:
        return tuple(_in_directory(path, MISNAMED))
    except OSError:
        return ()


def _misspelt(file: dict[object, object]) -> bool:
    """Whether ``resources`` is there under a name that is told as a mistake already."""
    return any(did_you_mean(key, ["resources"]) for key in file)


def _merged(path: Path, files: Iterable[Written], problems: list[Problem]) -> Written:
    """The files as one: their resources one after another, filled in with the defaults of all."""
    resources: list[Any] = []
    places: dict[Steps, Place] = {(): Place(str(path))}
    whole = Written({"resources": resources, "defaults": {}, "kubelet": {}}, places)
    for file in files:
        for steps, place in file.places.items():
            places.setdefault(_behind(len(resources), steps), place)
        for key in ("defaults", "kubelet"):
            if isinstance(file.value.get(key), dict):
                _join(whole.below(key), file.below(key), problems)
        if isinstance(more := file.value.get("resources"), list):
            resources.extend(more)
    _fill_in(whole.value["defaults"], resources, places)
    return whole


def _behind(number: int, steps: Steps) -> Steps:
    """``steps`` of a file whose resources come after ``number`` others."""
    if steps[:1] == ("resources",) and len(steps) > 1 and isinstance(steps[1], int):
        return ("resources", steps[1] + number, *steps[2:])
    return steps


def _join(whole: Written, more: Written, problems: list[Problem]) -> None:
    """Puts what ``more`` has into the mapping ``whole``, key by key."""
    for key, value in more.value.items():
        known = whole.value.setdefault(key, value)
        if isinstance(known, dict) and isinstance(value, dict):
            _join(whole.below(key), more.below(key), problems)
        elif known is not value and known != value:
            expected = f"{shown(known)}, as at {whole.place(key)}"
            problems.append(Problem(more.place(key), shown(value), expected, "all files share these keys"))


def _fill_in(defaults: dict[Any, Any], resources: list[Any], places: dict[Steps, Place]) -> None:
    """Gives each resource the defaults, with their places."""
    defaults = {key: value for key, value in defaults.items() if key not in OWN}
    known = [(steps[1:], at) for steps, at in places.items() if steps[:1] == ("defaults",) and steps[1:]]
    for index, own in enumerate(resources):
        if isinstance(own, dict):
            resources[index] = _over(defaults, own)
            above = ("resources", index)
            places |= {(*above, *steps): at for steps, at in known if (*above, *steps[:2]) not in places}


def _over(defaults: dict[Any, Any], own: dict[Any, Any]) -> dict[Any, Any]:
    """``own`` over ``defaults``: mappings are joined key by key, anything else replaces the default."""
    whole = defaults | own
    for key in defaults.keys() & own.keys():
        if isinstance(defaults[key], dict) and isinstance(own[key], dict | None):
            whole[key] = defaults[key] | (own[key] or {})
    return whole


def _check_defaults(defaults: Written, problems: list[Problem]) -> None:
    """What is wrong with the defaults is so even if no resource uses them."""
    expected = "any key of a resource but name and driver"
    problems.extend(
        Problem(defaults.place(key), "an unknown key", expected) for key in OWN.intersection(defaults.value)
    )
    probe = defaults.value | {"name": "example.com/any", "driver": "any"}
    typed(replace(defaults, value=probe), ResourceKeys, problems)


def _entry(own: Written, problems: list[Problem]) -> Entry:
    if isinstance(own.value, dict):
        return Entry(own, typed(own, ResourceKeys, problems))
    problems.append(Problem(own.place(), shown(own.value), "a mapping with the keys name, driver, ..."))
    return Entry(replace(own, value={}), None)


def _check_names(entries: Iterable[Entry], problems: list[Problem]) -> None:
    first: dict[str, Place] = {}
    for entry in entries:
        if "name" not in entry.written.value:
            continue
        place = entry.written.place("name")
        if first.setdefault(entry.name, place) is not place:
            hint = f"it is also at {first[entry.name]}"
            problems.append(Problem(place, shown(entry.name), "each resource once", hint))

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

from dpgateway.config.located import Mapped, locate, parse, unreadable
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Wrong, describe, did_you_mean, in_order
from dpgateway.config.structure import structure
from dpgateway.config.values import Kubelet, Resource

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
    """A resource of the document: as the file has it, defaults filled in, and typed (None if it is invalid)."""

    tree: Mapped
    resource: Resource | None

    @property
    def name(self) -> str:
        return str(self.tree.get("name"))

    @property
    def driver(self) -> str:
        return str(self.tree.get("driver"))

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
    trees = _trees(path, problems)
    defaults = _merged("defaults", trees, problems)
    kubelet_tree = _merged("kubelet", trees, problems)
    for tree in trees:
        structure(tree, File, problems)
    kubelet = structure(kubelet_tree, Kubelet, problems)
    _check_defaults(defaults, problems)
    entries = tuple(_entry(item, defaults, problems) for item in _items(trees))
    _check_names(entries, problems)
    if trees and not any("resources" in tree or _misspelt(tree) for tree in trees):
        problems.append(Wrong("no resources", "a list of resources").at(Place(str(path), key="resources")))
    return Document(path, entries, kubelet or Kubelet(), ignored=_misnamed(path)), in_order(problems)


def _trees(path: Path, problems: list[Problem]) -> list[Mapped]:
    trees = []
    for file in _files(path, problems):
        try:
            trees.append(parse(file))
        except InvalidConfiguration as error:
            problems.extend(error.problems)
    return trees


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    try:
        files = _in_directory(path, {".yaml"})
    except (FileNotFoundError, NotADirectoryError):
        return [path]
    except OSError as error:
        problems.extend(unreadable(error, Place(str(path))).problems)
        return []
    if not files:
        problems.append(Wrong("no *.yaml in this directory", "at least one").at(Place(str(path))))
    return files


def _in_directory(path: Path, endings: Set[str]) -> list[Path]:
    # Hidden ones are not for us: a mounted ConfigMap keeps its older versions in ..data.
    return sorted(file for file in path.iterdir() if file.suffix in endings and not file.name.startswith("."))


def _misnamed(path: Path) -> tuple[Path, ...]:
    try:
        return tuple(_in_directory(path, MISNAMED))
    except OSError:
        return ()


def _merged(key: str, trees: Iterable[Mapped], problems: list[Problem]) -> Mapped:
    """The mappings that the files have at ``key``, as one."""
    whole = Mapped(Place("", key=key))
    for tree in trees:
        if isinstance(tree.get(key), Mapped):
            _join(whole, tree[key], problems)
    return whole


def _join(whole: Mapped, more: Mapped, problems: list[Problem]) -> None:
    for key, value in more.items():
        if key not in whole:
            whole.take(more, key)
            if isinstance(value, Mapped):
                whole[key] = Mapped(value.place)
        if isinstance(value, Mapped) and isinstance(whole[key], Mapped):
            _join(whole[key], value, problems)
        elif whole[key] != value:
            expected = f"{describe(whole[key])}, as at {whole.places[key]}"
            problems.append(Wrong(describe(value), expected, "all files share these keys").at(more.places[key]))


def _check_defaults(defaults: Mapped, problems: list[Problem]) -> None:
    """What is wrong with the defaults is so even if no resource uses them."""
    for key in OWN.intersection(defaults):
        wrong = Wrong("an unknown key", "any key of a resource but name and driver")
        problems.append(wrong.at(defaults.places[key]))
    probe = Mapped(defaults.place)
    probe.update(name="example.com/any", driver="any")
    structure(_overlaid(defaults, probe), Resource, problems)


def _overlaid(defaults: Mapped, own: Mapped) -> Mapped:
    """``own`` over ``defaults``: mappings are joined key by key, anything else replaces the default."""
    whole = Mapped(own.place)
    for key in defaults:
        if key not in OWN:
            whole.take(defaults, key)
    for key, value in own.items():
        inherited = whole.get(key)
        whole[key], whole.places[key] = value, own.places.get(key, own.place)
        if isinstance(inherited, Mapped) and isinstance(value, Mapped):
            whole[key] = joined = Mapped(value.place)
            for source in (inherited, value):
                for inner in source:
                    joined.take(source, inner)
        elif isinstance(inherited, Mapped) and value is None:
            whole[key] = inherited
    return whole


def _misspelt(tree: Mapped) -> bool:
    """Whether ``resources`` is there under a name that is told as a mistake already."""
    return any(did_you_mean(key, ["resources"]) for key in tree)


def _items(trees: Iterable[Mapped]) -> Iterable[tuple[object, Place]]:
    for tree in trees:
        resources = tree.get("resources")
        if isinstance(resources, list):
            yield from ((item, locate(tree, ("resources", index))) for index, item in enumerate(resources))


def _entry(item: tuple[object, Place], defaults: Mapped, problems: list[Problem]) -> Entry:
    own, place = item
    if not isinstance(own, Mapped):
        problems.append(Wrong(describe(own), "a mapping with the keys name, driver, ...").at(place))
        return Entry(Mapped(place), None)
    tree = _overlaid(defaults, own)
    return Entry(tree, structure(tree, Resource, problems))


def _check_names(entries: Iterable[Entry], problems: list[Problem]) -> None:
    first: dict[str, Place] = {}
    for entry in entries:
        place = entry.tree.places.get("name")
        if place is None:
            continue
        if entry.name in first:
            wrong = Wrong(describe(entry.name), "each resource once", f"it is also at {first[entry.name]}")
            problems.append(wrong.at(place))
        first.setdefault(entry.name, place)

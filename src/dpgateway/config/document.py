"""Reads a file, or a directory of files, into a checked :class:`Document`. Drivers' options stay as written.

The files of a directory are one configuration. All keys but ``resources`` apply to all of them, so two files that set
one of these keys differently are an error. So is a duplicate resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_type_hints

from dpgateway.config.files import Files, read_all
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, did_you_mean, in_order, missing_space
from dpgateway.config.source import Written, unplaced
from dpgateway.config.strict import typed
from dpgateway.config.values import (
    STATE_DIR,
    ClusterSettings,
    Configuration,
    DraSettings,
    File,
    KubeletSettings,
    ResourceKeys,
    RuntimeSettings,
    WebSettings,
)

NO_DRIVER = (
    "dra and auto need the top-level key dra.driver, this node's driver in slices and at the kubelet: dra.example.com"
)
OWN = frozenset({"name", "driver"})
"""The keys that ``defaults`` can't have."""
SHARED: Mapping[str, type] = {
    "defaults": dict,
    "kubelet": dict,
    "runtime": dict,
    "web": dict,
    "state_dir": str,
    "dra": dict,
    "cluster": dict,
}
"""The keys that all files share, with their types in YAML."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A resource of the document, with the defaults filled in: as written, and typed (None if it is invalid)."""

    written: Written
    resource: ResourceKeys | None

    @property
    def name(self) -> str:
        return _text(self.written.part("name"))

    @property
    def driver(self) -> str:
        return _text(self.written.part("driver"))

    @property
    def on_dra(self) -> bool:
        """Whether it is offered by DRA, or may be."""
        return self.resource is not None and self.resource.on_dra

    def serves(self, node_name: str) -> bool:
        """Whether the resource is for this node. An invalid resource is for all nodes, a pattern in place of a name has
        the resources with this pattern.
        """
        if self.resource is None:
            return True
        return any(node_name == pattern or fnmatchcase(node_name, pattern) for pattern in self.resource.nodes)


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration, checked except for its drivers' options."""

    path: Path
    entries: tuple[Entry, ...]
    kubelet: KubeletSettings = KubeletSettings()  # noqa: RUF009  this and the next are frozen
    state_dir: Path = STATE_DIR
    runtime: RuntimeSettings = RuntimeSettings()  # noqa: RUF009
    web: WebSettings = WebSettings()  # noqa: RUF009
    dra: DraSettings = DraSettings()  # noqa: RUF009
    cluster: ClusterSettings = ClusterSettings()  # noqa: RUF009
    elsewhere: tuple[Entry, ...] = ()
    """The resources of other nodes."""
    node_name: str = ""
    """The node of the entries; empty: any."""
    ignored: tuple[Path, ...] = ()
    """Files of the directory that aren't read, but whose names suggest that they were meant to be."""

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers that its resources name."""
        return frozenset(entry.driver for entry in self.entries)

    def for_node(self, node_name: str) -> Document:
        """The same without the resources of other nodes."""
        ours = tuple(entry for entry in self.entries if entry.serves(node_name))
        others = tuple(entry for entry in self.entries if not entry.serves(node_name))
        return replace(self, entries=ours, elsewhere=self.elsewhere + others, node_name=node_name)

    def for_all_nodes(self) -> tuple[Document, ...]:
        """One for each set of resources that nodes with the patterns of ``nodes`` as their names would have.

        So each resource that a node can have is in one of them, beside those that its nodes have, too. Resources of
        patterns that merely overlap, such as ``gpu-*`` and ``*-1``, are never together.
        """
        patterns = {pattern for entry in self.entries if entry.resource for pattern in entry.resource.nodes}
        found = [self.for_node(pattern) for pattern in sorted(patterns or {"*"})]
        return tuple({tuple(entry.written.place for entry in one.entries): one for one in found}.values())


def read(path: Path, files: Files | None = None) -> tuple[Document, tuple[Problem, ...]]:
    """The valid part of the configuration at ``path``, a file or a directory, and all problems of the rest.

    ``files``: the files' content, if it has been read already.
    """
    files = files or read_all(path)
    problems = list(files.problems)
    document = _document(path, files.written, problems)
    problems += _mixed(document.entries)
    return replace(document, ignored=files.ignored), in_order(problems)


def to_json(configuration: Configuration) -> dict[str, Any]:
    """The configuration with the keys of its file and the defaults filled in, as values for JSON."""

    def plain(value: Any) -> Any:  # noqa: ANN401
        if is_dataclass(value):  # unset settings are left out
            keys = {key.name: getattr(value, key.name) for key in fields(value)}
            return {key: plain(inner) for key, inner in keys.items() if inner is not None}
        if isinstance(value, tuple):
            return [plain(inner) for inner in value]
        return value if isinstance(value, bool) else str(value)

    settings = {
        key: plain(getattr(configuration, key)) for key in ("kubelet", "state_dir", "runtime", "web", "dra", "cluster")
    }
    return {"resources": [resource.written for resource in configuration.resources], **settings}


def from_json(value: object, name: str) -> Document:
    """The document of a file with these values; ``name`` stands for the file. A gateway serves a pool of different
    fronts while one of it goes on as before. Raises InvalidConfiguration.
    """
    problems: list[Problem] = []
    document = _document(Path(name), [unplaced(value, Place(name))], problems)
    if problems:
        raise InvalidConfiguration(problems)
    return document


def _document(path: Path, files: Sequence[Written], problems: list[Problem]) -> Document:
    """``problems``: of files that can't be read, which may have the resources; those of ``files`` are added."""
    # The shared keys, as if one file had them all.
    unread = bool(problems)
    shared = Written({}, Place(str(path)))
    for file in files:
        typed(file, File, problems)
        more = {key: value for key, value in file.value.items() if isinstance(value.value, SHARED.get(key, ()))}
        shared = _joined(shared, replace(file, value=more), problems)

    # The defaults are checked on their own: a mistake in them is reported even if there is no resource.
    defaults = shared.below("defaults") or Written({}, shared.at("defaults"))
    wrong, expected = OWN.intersection(defaults.value), "any key of a resource but name and driver"
    problems.extend(Problem(defaults.at(key), "an unknown key", expected) for key in wrong)
    probe = defaults.value | unplaced({"name": "example.com/any", "driver": "any"}).value
    typed(replace(defaults, value=probe), ResourceKeys, problems)

    # The resources of all files. A misspelt ``resources`` is an unknown key already.
    entries = tuple(entry for file in files for entry in _entries(file, defaults, problems))
    first: dict[str, Place] = {}
    for entry in entries:
        name = entry.written.part("name")
        if isinstance(name.value, str) and (other := first.setdefault(name.value, name.place)) != name.place:
            problems.append(Problem(name.place, name.shown, "each resource once", f"it is also at {other}"))
    keys = {key for file in files for key in file.value}
    if files and not unread and "resources" not in keys and not any(did_you_mean(key, ["resources"]) for key in keys):
        problems.append(Problem(Place(str(path), key="resources"), "no resources", "a list of resources"))

    # The valid settings; absent ones keep their defaults.
    kinds = get_type_hints(File)
    settings = [one for one in fields(File) if one.name in SHARED.keys() - {"defaults"} and shared.below(one.name)]
    found = {one.name: typed(shared.part(one.name), kinds[one.name], problems, one.metadata) for one in settings}
    made = Document(path, entries, **{name: value for name, value in found.items() if value is not None})
    if not shared.below("dra") or shared.part("dra", "driver").value is None:
        on_dra = [
            (entry.written.at("front"), entry.resource.front) for entry in entries if entry.resource and entry.on_dra
        ]
        problems += [Problem(place, found, "deviceplugin", NO_DRIVER) for place, found in on_dra]
    return made


def _mixed(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Pools whose members can't change their front together."""
    pools: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.resource is not None and entry.resource.pool is not None:
            pools.setdefault(entry.resource.pool, []).append(entry)
    for pool, some in pools.items():
        kinds = {entry.resource.front for entry in some if entry.resource is not None}
        if "auto" in kinds and len(kinds) > 1:
            odd, front = next((entry, one.front) for entry in some if (one := entry.resource) and one.front != "auto")
            why = f"the resources of pool {pool} change their front together"
            yield Problem(odd.written.at("front"), front, "auto, as the others", why)


def _joined(whole: Written, more: Written, problems: list[Problem], shared: str = "this key") -> Written:
    """Merges two mappings, nested ones as well. A key with two different values is a problem, and keeps the first."""
    value = dict(whole.value)
    for key, new in more.value.items():
        known = value.setdefault(key, new)
        if known is new:
            continue
        if isinstance(known.value, dict) and isinstance(new.value, dict):
            value[key] = _joined(known, new, problems, "these keys")
        elif known.plain() != new.plain():
            expected = f"{known.shown}, as at {known.place}"
            problems.append(Problem(new.place, new.shown, expected, f"all files share {shared}"))
    return replace(whole, value=value)


def _entries(file: Written, defaults: Written, problems: list[Problem]) -> Iterator[Entry]:
    """The resources of one file, with the defaults filled in."""
    resources = file.part("resources").value
    for own in resources if isinstance(resources, list) else ():
        if not isinstance(own.value, dict):
            expected = "a mapping with the keys name, driver, ..."
            problems.append(Problem(own.place, own.shown, expected, missing_space(own.value)))
            yield Entry(replace(own, value={}), None)
            continue
        # The resource over the defaults: mappings are merged key by key, any other value replaces the default.
        value = {key: default for key, default in defaults.value.items() if key not in OWN}
        for key, mine in own.value.items():
            default = value.get(key)
            merges = default and isinstance(default.value, dict) and isinstance(mine.value, dict | None)
            value[key] = replace(mine, value=default.value | (mine.value or {})) if default and merges else mine
        whole = replace(own, value=value)
        yield Entry(whole, typed(whole, ResourceKeys, problems))


def _text(written: Written) -> str:
    return written.value if isinstance(written.value, str) else ""

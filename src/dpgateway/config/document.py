"""From a file, or a directory of files, to a checked :class:`Document`. Drivers' options stay as they were written.

The files of a directory are one configuration: ``defaults``, ``kubelet``, ``runtime`` and ``web`` hold for all of
them, wherever they stand, so a key that two files set to different values is an error; and so is a resource that is
named twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dpgateway.config.files import Files, read_all
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, did_you_mean, in_order
from dpgateway.config.strict import spaced, typed
from dpgateway.config.values import NO_WEB, STATE_DIR, Kubelet, ResourceKeys, Runtime, Web, absolute
from dpgateway.config.written import Written, unplaced

OWN = frozenset({"name", "driver"})
"""The keys that only a resource itself can have."""


@dataclass(frozen=True, slots=True)
class File:
    """What one file may say."""

    resources: tuple[Any, ...] = field(default=(), metadata={"help": "the resources to serve"})
    defaults: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "any key of a resource but name and driver, for those that don't set it"},
    )
    kubelet: Kubelet = field(default=Kubelet(), metadata={"help": "where the kubelet is, and how to talk with it"})
    state_dir: Path = field(
        default=STATE_DIR,
        metadata={"help": "where the gateway notes what it gave away, to know it after a restart", "check": absolute},
    )
    runtime: Runtime = field(default=Runtime(), metadata={"help": "what is needed of the container runtime"})
    web: Web = field(default=NO_WEB, metadata={"help": "the pages that say how the gateway is"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A resource of the document: as it was written, defaults filled in, and typed (None if it is invalid)."""

    written: Written
    resource: ResourceKeys | None

    @property
    def name(self) -> str:
        return self._text("name")

    @property
    def driver(self) -> str:
        return self._text("driver")

    def _text(self, key: str) -> str:
        written = self.written.below(key)
        return written.value if written and isinstance(written.value, str) else ""

    def serves(self, node_name: str) -> bool:
        """Whether the resource is for this node; an invalid resource counts as one that is."""
        return self.resource is None or any(fnmatchcase(node_name, pattern) for pattern in self.resource.nodes)


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration that is checked in all but its drivers' options."""

    path: Path
    entries: tuple[Entry, ...]
    kubelet: Kubelet
    state_dir: Path = STATE_DIR
    web: Web = NO_WEB
    runtime: Runtime = Runtime()  # noqa: RUF009  it is frozen
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


def read(path: Path, files: Files | None = None) -> tuple[Document, tuple[Problem, ...]]:
    """Like :func:`load`, but returns what can be used together with what is wrong.

    ``files``: what the files at ``path`` say; None: read them.
    """
    files = files or read_all(path)
    problems = list(files.problems)
    document = _document(path, files.written, problems)
    return replace(document, ignored=files.ignored), in_order(problems)


def of_plain(plain: object, name: str) -> Document:
    """What a file with these values would say; ``name`` stands for the file. Raises InvalidConfiguration."""
    problems: list[Problem] = []
    document = _document(Path(name), [unplaced(plain, Place(name))], problems)
    if problems:
        raise InvalidConfiguration(in_order(problems))
    return document


def _document(path: Path, files: Sequence[Written], problems: list[Problem]) -> Document:
    for file in files:
        typed(file, File, problems)
    state_dir = _state_dir(files, problems)
    kubelet = typed(_merged("kubelet", path, files, problems), Kubelet, problems) or Kubelet()
    runtime = typed(_merged("runtime", path, files, problems), Runtime, problems) or Runtime()
    web = typed(_merged("web", path, files, problems), Web, problems) or NO_WEB
    defaults = _merged("defaults", path, files, problems)
    _check_defaults(defaults, problems)
    entries = tuple(entry for file in files for entry in _entries(file, defaults, problems))
    _check_names(entries, problems)
    if files and not any("resources" in file.value or _misspelt(file.value) for file in files):
        problems.append(Problem(Place(str(path), key="resources"), "no resources", "a list of resources"))
    return Document(path, entries, kubelet, state_dir, web, runtime)


def _misspelt(file: Mapping[str, Written]) -> bool:
    """Whether ``resources`` is there under a name that is reported as a mistake already."""
    return any(did_you_mean(key, ["resources"]) for key in file)


def _state_dir(files: Iterable[Written], problems: list[Problem]) -> Path:
    """The one that a file has."""
    given = [at for file in files if (at := file.below("state_dir")) and isinstance(at.value, str)]
    for other in given[1:]:
        if other.value != given[0].value:
            expected = f"{given[0].shown}, as at {given[0].place}"
            problems.append(Problem(other.place, other.shown, expected, "all files share this key"))
    return Path(given[0].value) if given else STATE_DIR


def _merged(key: str, path: Path, files: Iterable[Written], problems: list[Problem]) -> Written:
    """The mappings that the files have at ``key``, as one."""
    found = [mapping for file in files if (mapping := file.below(key)) and isinstance(mapping.value, dict)]
    whole = found[0] if found else Written({}, Place(str(path), key=key))
    for mapping in found[1:]:
        whole = _joined(whole, mapping, problems)
    return whole


def _joined(whole: Written, more: Written, problems: list[Problem]) -> Written:
    value = dict(whole.value)
    for key, new in more.value.items():
        known = value.setdefault(key, new)
        if isinstance(known.value, dict) and isinstance(new.value, dict):
            value[key] = _joined(known, new, problems)
        elif known.plain() != new.plain():
            expected = f"{known.shown}, as at {known.place}"
            problems.append(Problem(new.place, new.shown, expected, "all files share these keys"))
    return replace(whole, value=value)


def _check_defaults(defaults: Written, problems: list[Problem]) -> None:
    """A mistake in the defaults is reported even if no resource uses them."""
    expected = "any key of a resource but name and driver"
    wrong = OWN.intersection(defaults.value)
    problems.extend(Problem(defaults.at(key), "an unknown key", expected) for key in wrong)
    probe = defaults.value | unplaced({"name": "example.com/any", "driver": "any"}).value
    typed(replace(defaults, value=probe), ResourceKeys, problems)


def _entries(file: Written, defaults: Written, problems: list[Problem]) -> Iterator[Entry]:
    resources = file.below("resources")
    for own in resources.value if resources and isinstance(resources.value, list) else ():
        if isinstance(own.value, dict):
            whole = _over(defaults, own)
            yield Entry(whole, typed(whole, ResourceKeys, problems))
        else:
            problems.append(Problem(own.place, own.shown, "a mapping with the keys name, driver, ...", spaced(own)))
            yield Entry(replace(own, value={}), None)


def _over(defaults: Written, own: Written) -> Written:
    """``own`` over ``defaults``: mappings are joined key by key, anything else replaces the default."""
    value = {key: default for key, default in defaults.value.items() if key not in OWN}
    for key, mine in own.value.items():
        default = value.get(key)
        if default and isinstance(default.value, dict) and isinstance(mine.value, dict | None):
            value[key] = replace(mine, value=default.value | (mine.value or {}))
        else:
            value[key] = mine
    return replace(own, value=value)


def _check_names(entries: Iterable[Entry], problems: list[Problem]) -> None:
    first: dict[str, Place] = {}
    for entry in entries:
        name = entry.written.below("name")
        if name and isinstance(name.value, str) and (other := first.setdefault(name.value, name.place)) != name.place:
            problems.append(Problem(name.place, name.shown, "each resource once", f"it is also at {other}"))

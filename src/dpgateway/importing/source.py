"""Reads a file with another plugin's configuration, and finds it inside its wrappers.

The file may be the plugin's own, a manifest, the output of ``kubectl get -o yaml``, a HelmRelease, a chart's values, a
patch, or a command line. What they have in common: the plugin's own mapping, or its list of arguments, is somewhere in
it, perhaps in a text that is YAML or JSON itself. So an importer doesn't know the wrappings; it names the keys that
only its plugin has (``holding``), or the flags (``commands``), or the kind of an object (``objects``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.source import Written
from dpgateway.importing.commands import FLAG, flags, is_command_line, split
from dpgateway.importing.documents import parsed, parts_of, within_prose
from dpgateway.importing.files import PATIENCE, contents
from dpgateway.importing.prose import has_blocks, is_for_people

MOST_DOCUMENTS = 1000
"""YAML documents in one file."""
MOST_TEXTS = 10
"""Texts that are YAML, each within the one before."""
MOST_REPEATED = 256 * 1024
"""Characters of texts that aliases repeat, which are parsed at each use."""
_CHARTS = "a chart's template"
_LANGUAGES = (
    ("Jinja", re.compile(r"\{%")),
    ("a policy's template", re.compile(r"\{\{-?hub\b")),  # of Open Cluster Management
    (_CHARTS, re.compile(r"\{\{")),
    ("Nix", re.compile(r"^[ \t]*\{[^{}:]*\}\s*:\s*(\{|let\b|$)", re.MULTILINE)),
    (
        "Terraform's language",
        re.compile(r"^[ \t]*(resource|data|module|variable|locals|provider)\b[^:\n]*\{", re.MULTILINE),
    ),
    ("CUE", re.compile(r"^package\s+\w+\s*$", re.MULTILINE)),
    ("TypeScript", re.compile(r"^import\s.+\sfrom\s+['\"]", re.MULTILINE)),
    ("Jsonnet", re.compile(r"^[ \t]*(local\s+\w+\s+=\s|import(str)?\s+['\"])|\+::?\s*\{", re.MULTILINE)),
)
"""Patterns of lines of other languages, in the order of the attempts. What begins a line takes no line breaks: of blank
lines each would take all below it.
"""
_OF_THE_CLUSTER = "give what it makes, as `kubectl get -o yaml` prints it"
_BLOCK = re.compile(r"[|>][-+0-9]*\s*(#.*)?$")
"""The end of a line before a block scalar."""
_OF_CONTAINER = re.compile(r"(^|\.)(command|args)$")
_FLAGS_OF_FILES = {"config", "config-file", "values", "f"}
_OF_VALUES = ("valuesFile", "valueFiles")
_OF_OBJECTS = ("metadata", "spec", "data")
_ASKING = [f"VirtualMachine{one}" for one in ("", "Instance", "InstanceReplicaSet", "Pool", "Instancetype")]
"""KubeVirt's kinds of objects that have no devices to offer."""
_OFFERING = "give the object KubeVirt or HyperConverged, whose permittedHostDevices `dpgateway import kubevirt` reads"
_SELECTING = re.compile(r"\b(nodeSelector|nodeAffinity)\b")
_AFFINITY = ("affinity", "nodeAffinity")
_REPEATED = ("annotations", "managedFields")
_MAPPING = re.compile(r"^[ \t]*[-{[]|:\s", re.MULTILINE)
"""A text without it has no mapping, and no list."""


@dataclass(frozen=True, slots=True)
class Source:
    """The contents of the file."""

    path: Path
    text: str
    documents: tuple[Written, ...]
    """The YAML documents; of a script or a text for people those in it, and what each of Helm's commands
    installs; empty for another command line.
    """
    dev: Path = Path("/dev")
    """The node's /dev, for importers whose plugin names resources after device nodes."""
    broken: tuple[Problem, ...] = ()
    """The documents that can't be parsed, beside others that can."""
    lines: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _inner: dict[tuple[int, str], list[Written]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The documents of texts, by the line above; each place in a text looks around itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(self.text.splitlines()))

    @classmethod
    def read(cls, path: Path, dev: Path = Path("/dev"), patience: float = PATIENCE) -> Source:
        """Reads a file. Raises InvalidConfiguration if it is unreadable, or neither YAML nor has command lines.
        A document that isn't YAML costs no other one.

        ``patience``: seconds to wait for more data from a pipe.
        """
        text = contents(path, patience)
        if is_command_line(text):
            return cls(path, text, tuple(within_prose(text, str(path))), dev)
        parts = list(islice(parts_of(text), MOST_DOCUMENTS + 1))
        if len(parts) > MOST_DOCUMENTS:
            many = f"more than {MOST_DOCUMENTS} documents"
            raise InvalidConfiguration([Problem(Place(str(path)), many, "a configuration")])
        documents, broken = list[Written](), list[Problem]()
        for above, part in parts:
            try:
                one = parsed(part, str(path), above)
                documents += [one] if one is not None else []
            except InvalidConfiguration as error:
                broken += (replace(problem, hint=_hint(part) or problem.hint) for problem in error.problems)
        is_prose = not any(isinstance(one.value, dict | list) for one in documents) or (broken and has_blocks(text))
        if is_prose and (found := tuple(within_prose(text, str(path)))):
            return cls(path, text, found, dev)
        if is_for_people(path) or text.startswith("#!"):  # words and commands needn't be YAML
            return cls(path, text, tuple(documents) or (Written("", Place(str(path), 1)),), dev)
        if broken and not documents:
            raise InvalidConfiguration(broken)
        return cls(path, text, tuple(documents), dev, tuple(broken))

    def objects(self, *kinds: str) -> Iterator[Written]:
        """The Kubernetes objects of these kinds, without references to objects, which have a kind and a name only."""
        for one in self.everywhere(*kinds):
            if text(one.below("kind")) in kinds and any(one.below(key) for key in _OF_OBJECTS):
                yield one

    def nodes_at(self, place: Place) -> str:
        """The selection of nodes for the pods at a place, as text; empty without one."""
        pods = self._pods_at(place)
        if labels := _labels(pods):
            return "nodeSelector " + ",".join(f"{key}={value}" for key, value in labels.items())
        return "nodeAffinity" if pods is not None else ""

    def selector_at(self, place: Place) -> dict[str, str]:
        """The nodeSelector of the pods at a place; empty if they have none."""
        return _labels(self._pods_at(place))

    def _pods_at(self, place: Place) -> Written | None:
        """The mapping around a place that has a nodeSelector or a nodeAffinity, or of bjw-s' app-template the one
        beside it.
        """
        around, inside = list[Written](), list(self.documents)
        while above := [one for one in inside if one.place.line <= place.line]:
            around.append(max(above, key=lambda one: one.place.line))
            inside = self._inside(around[-1])
        beside = ((one, one.part("pod"), one.part("defaultPodOptions"), _set(one)) for one in reversed(around))
        selecting = (
            one for one in chain.from_iterable(beside) if _labels(one) or one.part(*_AFFINITY).value is not None
        )
        return next(selecting, None)

    def _inside(self, written: Written) -> list[Written]:
        """The values in a value, which may be a text that selects nodes: an Application's values, or a patch."""
        if isinstance(written.value, dict | list):
            return list(written.value.values()) if isinstance(written.value, dict) else written.value
        if not _SELECTING.search(text(written)):
            return []
        try:
            return self.inner(written)
        except InvalidConfiguration:
            return []

    def holding(self, *keys: str) -> Iterator[Written]:
        """The mappings with one of these keys, in upper or lower case; and a value with problems for each text that has
        such a key and can't be parsed.
        """
        wanted = {key.lower() for key in keys}
        for one in self.everywhere(*keys):
            keys_here = {key.lower() for key in one.value} if isinstance(one.value, dict) else set[str]()
            if one.problems and isinstance(one.value, str):
                yield replace(one, value=None)
            elif wanted & keys_here:
                yield one

    def commands(self) -> Iterator[tuple[Written, ...]]:
        """The words of each command line: the file itself, ``command`` and ``args`` of a mapping, or another list."""
        if not self.documents:
            yield tuple(split(self.text, str(self.path)))
        for one in self.everywhere("args", "command", "--"):
            if words := [part for key in ("command", "args") for part in items(one.below(key))]:
                yield tuple(words)
            elif not _OF_CONTAINER.search(one.place.key) and any(FLAG.fullmatch(text(part)) for part in items(one)):
                yield tuple(one.value)

    def everywhere(self, *words: str) -> Iterator[Written]:
        """Each value of the file, those around others first; also in texts that have one of ``words``, as far as they
        are YAML or JSON.
        """
        left = [MOST_TEXTS * len(self.text) + MOST_REPEATED]
        for one in self.documents:
            yield from self._within(one, re.compile("|".join(map(re.escape, words)), re.IGNORECASE), left)

    def inner(self, written: Written) -> list[Written]:
        """The documents of a string that is YAML itself, with the file's line numbers. Raises InvalidConfiguration."""
        line = self.lines[written.place.line - 1 : written.place.line]
        begins_below = bool(line and _BLOCK.search(line[0]))
        above = written.place.line - (not begins_below)
        if (known := self._inner.get((above, written.value))) is not None:
            return known
        parts = ((above + more, part) for more, part in parts_of(written.value))
        documents = (parsed(part, str(self.path), line) for line, part in parts)
        self._inner[above, written.value] = found = [one for one in documents if one is not None]
        return found

    def nothing(self, expected: str) -> InvalidConfiguration:
        """The error of an importer that found nothing in the file, with the file that has it, if this one names it."""
        place, where = next(self._elsewhere(), (Place(""), ""))
        both = "give that one, or both, with a line --- between them"
        hint = f"line {place.line} {where}: {both}" if where else _hint(self.text)  # a short text is YAML, too
        defined = next((one for document in self.documents for one in document.parts() if _defines(one)), None)
        if not hint and defined is not None:
            hint = f"line {defined.place.line} defines a kind of objects: give an object of it"
        if not hint and (one := next(self.objects(*_ASKING), None)):
            hint = f"the {text(one.below('kind'))} of line {one.place.line} only asks for devices: {_OFFERING}"
        return InvalidConfiguration([Problem(Place(str(self.path)), "nothing of it", expected, hint), *self.broken])

    def _elsewhere(self) -> Iterator[tuple[Place, str]]:
        """Where another file is named, from which plugin, Kustomization, pod or chart take the configuration."""
        for words in self.commands():
            found = (value for name, value in flags(words) if name in _FLAGS_OF_FILES and value.value != "-")
            yield from ((value.place, f"takes it from {value.value}") for value in found)
        for one in self.holding("configMapGenerator"):
            for generator in items(one.below("configMapGenerator")):
                files = ((file.place, text(file).rpartition("=")[2]) for file in items(generator.below("files")))
                yield from ((place, f"takes it from {file}") for place, file in files)
        for one in self.holding(*_OF_VALUES):
            parts = [part for key in _OF_VALUES if (part := one.below(key))]
            values = [each for part in parts for each in (items(part) or [part])]
            yield from ((each.place, f"takes it from {text(each)}") for each in values if text(each))
        for one in self.everywhere("configMap"):
            # a volume, bjw-s' app-template, Flux' valuesFrom
            is_one = text(one.below("type")) == "configMap" or text(one.below("kind")) == "ConfigMap"
            named = text(one.below("name")) if is_one else text(one.part("configMap", "name"))
            if named:
                yield one.place, f"names the ConfigMap {named}, which may have it"

    def _within(self, written: Written, words: re.Pattern[str], left: list[int], texts: int = 0) -> Iterator[Written]:
        """``texts``: in how many texts it is. Each is parsed again, so it costs as much as all that are in it.
        ``left``: the number of characters that may be parsed yet. Raises InvalidConfiguration if that is too few.
        """
        if _defines(written):
            return
        yield written
        inner: Iterable[Written] = ()
        if isinstance(written.value, dict):
            # an annotation repeats the whole object, as kubectl applied it
            inner = (one for key, one in written.value.items() if key not in _REPEATED)
        elif isinstance(written.value, list):
            inner = written.value
        elif text(written) and not written.problems and words.search(written.value) and _MAPPING.search(written.value):
            if texts == MOST_TEXTS or FLAG.fullmatch(written.value):  # a word of a command isn't YAML
                return
            texts += 1
            left[0] -= len(written.value)
            if left[0] < 0:
                many = "texts that aliases repeat too often"
                raise InvalidConfiguration([Problem(written.place, many, "fewer uses of them")])
            try:
                inner = [one for one in self.inner(written) if isinstance(one.value, dict | list)]
            except InvalidConfiguration as error:
                hint = _hint(written.value)
                problems = tuple(replace(one, hint=hint or one.hint) for one in error.problems)
                inner = [replace(written, problems=problems)]
        for one in inner:
            yield from self._within(one, words, left, texts)


def _hint(part: str) -> str:
    """The language of a text that isn't YAML; empty if unknown."""
    name = next((name for name, pattern in _LANGUAGES if pattern.search(part)), "")
    instead = "give what `helm template` prints" if name == _CHARTS else _OF_THE_CLUSTER
    return f"it looks like {name}: {instead}" if name else ""


def _labels(pods: Written | None) -> dict[str, str]:
    """The labels of a nodeSelector; empty for none."""
    labels = pods.part("nodeSelector").plain() if pods is not None else None
    return {key: str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def _set(operations: Written) -> Written:
    """The nodeSelector that a JSON Patch sets, as a mapping with this key."""
    one = next((one for one in items(operations) if text(one.below("path")).endswith("/nodeSelector")), None)
    value = one.below("value") if one is not None else None
    return replace(operations, value={"nodeSelector": value} if value else None)


def _defines(written: Written) -> bool:
    """Whether it is a schema, whose keys are those of objects."""
    return text(written.below("kind")) == "CustomResourceDefinition"


def text(written: Written | None) -> str:
    """A string; empty for anything else."""
    return written.value if written and isinstance(written.value, str) else ""


def in_any_case(written: Written, key: str) -> Written | None:
    """The value of a mapping's key in upper or lower case."""
    values = written.value.items() if isinstance(written.value, dict) else ()
    return next((value for name, value in values if name.lower() == key.lower()), None)


def items(written: Written | None) -> list[Written]:
    """The items of a list; none for anything else."""
    return written.value if written and isinstance(written.value, list) else []

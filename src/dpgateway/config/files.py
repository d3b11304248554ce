"""Reads YAML files as plain values, with an index of the place of each value."""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Steps, key_path, shown

LARGEST_FILE = 16 * 1024 * 1024
"""Bytes."""
MOST_VALUES = 200_000
"""In one file; a value counts as often as aliases repeat it."""
MISNAMED = frozenset({".yml", ".YAML", ".YML", ".json"})
"""Endings of files in a directory that their author may believe to be read."""

_SYNTAX_ERRORS = (
    ("'\\t'", "a tab", "spaces", "YAML is indented with spaces only"),
    ("but found another document", "a second document ('---')", "one document per file", ""),
    ("expected <block end>", "broken YAML", "the keys of a mapping, and the items of a list, indented alike", ""),
    (
        "mapping values are not allowed here",
        "broken YAML",
        "keys of one mapping indented alike, one per line",
        "a value that contains ': ' needs quotes",
    ),
)
"""What ruamel.yaml says, and what we say instead: found, expected, hint."""


@dataclass(frozen=True, slots=True)
class Written:
    """A plain value (dicts, lists and scalars), and the index of its places: where the files have it, and its parts."""

    value: Any
    places: MutableMapping[Steps, Place]
    """By the steps from the index's root, which has a place too."""
    steps: Steps = ()
    """From the index's root to ``value``."""

    def place(self, *steps: object) -> Place:
        """Where ``steps`` lead to from here; for what isn't there, the place of the nearest thing above it."""
        path = known = (*self.steps, *steps)
        while known not in self.places:
            known = known[:-1]
        return self.places[known].below(path[len(known) :])

    def below(self, step: object) -> Written:
        """What stands at ``step``: of a mapping that doesn't have it, None."""
        value = self.value.get(step) if isinstance(self.value, dict) else self.value[step]
        return Written(value, self.places, (*self.steps, step))


def read_all(path: Path, problems: list[Problem]) -> list[Written]:
    """What ``path`` says, a file or each ``*.yaml`` of a directory. What is wrong is appended to ``problems``."""
    files = []
    for file in _files(path, problems):
        try:
            files.append(_parse(file))
        except InvalidConfiguration as error:
            problems.extend(error.problems)
    return files


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    try:
        files = _in_directory(path, {".yaml"})
    except (FileNotFoundError, NotADirectoryError):
        return [path]
    except OSError as error:
        problems.extend(_unreadable(error, Place(str(path))).problems)
        return []
    if not files:
        problems.append(Problem(Place(str(path)), "no *.yaml in this directory", "at least one"))
    return files


def _in_directory(path: Path, endings: Set[str]) -> list[Path]:
    # Hidden ones are not for us: a mounted ConfigMap keeps its older versions in ..data.
    return sorted(file for file in path.iterdir() if file.suffix in endings and not file.name.startswith("."))


def misnamed(path: Path) -> tuple[Path, ...]:
    """The files of the directory that aren't read, but may have been meant to."""
    try:
        return tuple(_in_directory(path, MISNAMED))
    except OSError:
        return ()


def _parse(file: Path) -> Written:
    """What ``file`` says, a mapping. Raises InvalidConfiguration with one problem."""
    whole = Place(str(file))
    data = _load(file, whole)
    if data is None:
        raise _invalid(whole, "an empty file", "resources", "see docs/reference/configuration.md")
    if not isinstance(data, CommentedMap):
        raise _invalid(Place(str(file), 1, 1), shown(data), "a mapping with the keys resources, defaults, kubelet")
    places: dict[Steps, Place] = {}
    try:
        return Written(_plain(data, Place(str(file), data.lc.line + 1, data.lc.col + 1), (), places), places)
    except RecursionError:
        raise _invalid(whole, "a value that contains itself, or is nested too deeply", "plain values") from None


def _unreadable(error: OSError, place: Place) -> InvalidConfiguration:
    """What to say of a file or directory that is there, but that can't be read."""
    hint = f"let uid {os.geteuid()} read it, or run as root" if isinstance(error, PermissionError) else ""
    return _invalid(place, f"a path that can't be read ({error.strerror})", "a readable file or directory", hint)


def _invalid(place: Place, found: str, expected: str, hint: str = "") -> InvalidConfiguration:
    return InvalidConfiguration([Problem(place, found, expected, hint)])


def _load(file: Path, whole: Place) -> object:
    yaml = YAML(typ="rt", pure=True)
    yaml.composer.warn_double_anchors = False
    text = _read(file, whole)
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        raise _syntax_error(error, whole) from error
    except RecursionError:
        raise _invalid(whole, "values nested too deeply", "plain values") from None
    except (YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:  # the last three for odd tags
        raise _invalid(whole, "broken YAML", "YAML 1.2", " ".join(str(error).split())) from error


def _read(file: Path, whole: Place) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise _invalid(whole, "no such file or directory", "a configuration file", "--config names another") from None
    except OSError as error:
        raise _unreadable(error, whole) from error
    if len(raw) > LARGEST_FILE:
        raise _invalid(whole, f"more than {LARGEST_FILE} bytes", "a configuration file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _invalid(whole, f"bytes that aren't UTF-8, at offset {error.start}", "text in UTF-8") from error


def _syntax_error(error: MarkedYAMLError, whole: Place) -> InvalidConfiguration:
    mark = error.problem_mark or error.context_mark
    place = Place(whole.file, mark.line + 1, mark.column + 1) if mark is not None else whole
    text = str(error.problem or error.context or "").strip()
    if isinstance(error, DuplicateKeyError):
        return _invalid(place, text.removeprefix("found ").split(" with value")[0], "each key once")
    for words, *instead in _SYNTAX_ERRORS:
        if words in text:
            return _invalid(place, *instead)
    return _invalid(place, "broken YAML", "YAML 1.2", text.removeprefix("found "))


def _plain(data: object, place: Place, steps: Steps, places: dict[Steps, Place]) -> object:
    """``data`` in plain types, with its places noted. Otherwise the configuration would keep ruamel's own types."""
    if len(places) > MOST_VALUES:
        raise _invalid(Place(place.file), f"more than {MOST_VALUES} values, with what aliases repeat", "fewer")
    places[steps] = place
    if isinstance(data, CommentedMap):
        known = data.lc.data or {}
        pairs = ((key, value, _at(place, known.get(key), key)) for key, value in data.items())
        return {key: _plain(value, at, (*steps, key), places) for key, value, at in pairs}
    if isinstance(data, CommentedSeq):
        items = ((index, item, _at(place, data.lc.item(index), index)) for index, item in enumerate(data))
        return [_plain(item, at, (*steps, index), places) for index, item, at in items]
    if isinstance(data, bool | ScalarBoolean):
        return bool(data)
    return next((plain(data) for plain in (str, int, float) if isinstance(data, plain)), data)


def _at(above: Place, position: Sequence[int] | None, step: object) -> Place:
    """The place of one key or item. One that came through a merge (<<) or stands below a tag has no position."""
    line, column = (position[0] + 1, position[1] + 1) if position else (above.line, above.column)
    return Place(above.file, line, column, key_path((step,), above.key))

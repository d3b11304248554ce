"""YAML files as plain dicts and lists that remember where each of their values stands."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from dpgateway.config.problems import InvalidConfiguration, Place, Problem, describe

LARGEST_FILE = 16 * 1024 * 1024
"""Bytes."""
MOST_VALUES = 200_000
"""Of one file, each as often as aliases repeat it."""


class Mapped(dict[Any, Any]):
    """A mapping of a file, with the places of its values."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.places: dict[Any, Place] = {}

    def take(self, other: Mapped, key: object) -> None:
        """Sets ``key`` to what ``other`` has there."""
        self[key] = other[key]
        self.places[key] = other.places[key]


class Listed(list[Any]):
    """A list of a file, with the places of its items."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.places: list[Place] = []


def locate(tree: Mapped, path: tuple[object, ...]) -> Place:
    """The place of what ``path`` leads to; for what isn't there, that of the nearest thing above it."""
    place, here = tree.place, tree
    for depth, step in enumerate(path):
        try:
            place, here = here.places[step], here[step]
        except (AttributeError, LookupError, TypeError):
            return place.below(*path[depth:])
    return place


def parse(file: Path) -> Mapped:
    """What ``file`` says. Raises InvalidConfiguration with one problem if it can't be read, or isn't a mapping."""
    whole = Place(str(file))
    data = _load(file, whole)
    if data is None:
        raise _invalid(whole, "an empty file", "resources", "see docs/reference/configuration.md")
    if not isinstance(data, CommentedMap):
        raise _invalid(Place(str(file), 1, 1), describe(data), "a mapping with the keys resources, defaults, kubelet")
    try:
        mapped = _mapping(data, Place(str(file), data.lc.line + 1, data.lc.col + 1), itertools.count())
    except RecursionError:
        raise _invalid(whole, "a value that contains itself, or is nested too deeply", "plain values") from None
    except _TooMany:
        raise _invalid(whole, f"more than {MOST_VALUES} values, with what aliases repeat", "fewer") from None
    return mapped


def unreadable(error: OSError, place: Place) -> InvalidConfiguration:
    """What to say of a file or directory that is there, but that can't be read."""
    hint = f"let uid {os.geteuid()} read it, or run as root" if isinstance(error, PermissionError) else ""
    return _invalid(place, f"a path that can't be read ({error.strerror})", "a readable file or directory", hint)


def _invalid(place: Place, found: str, expected: str, hint: str = "") -> InvalidConfiguration:
    return InvalidConfiguration([Problem(place.file, place.line, place.column, place.key, found, expected, hint)])


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
        raise unreadable(error, whole) from error
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
    if "'\\t'" in text:
        return _invalid(place, "a tab", "spaces", "YAML is indented with spaces only")
    if "but found another document" in text:
        return _invalid(place, "a second document ('---')", "one document per file")
    if "expected <block end>" in text:
        return _invalid(place, "broken YAML", "the keys of a mapping, and the items of a list, indented alike")
    if "mapping values are not allowed here" in text:
        expected = "keys of one mapping indented alike, one per line"
        return _invalid(place, "broken YAML", expected, "a value that contains ': ' needs quotes")
    return _invalid(place, "broken YAML", "YAML 1.2", text.removeprefix("found "))


class _TooMany(Exception):
    pass


def _located(data: object, place: Place, numbers: Iterator[int]) -> object:
    """``data`` in plain types; ruamel's own would be dragged into every value of the configuration."""
    if next(numbers) > MOST_VALUES:
        raise _TooMany
    if isinstance(data, CommentedMap):
        return _mapping(data, place, numbers)
    if isinstance(data, CommentedSeq):
        listed = Listed(place)
        for index, item in enumerate(data):
            line, column = data.lc.item(index) or (place.line - 1, place.column - 1)  # None below a tag
            listed.places.append(Place(place.file, line + 1, column + 1, place.below(index).key))
            listed.append(_located(item, listed.places[-1], numbers))
        return listed
    if isinstance(data, bool | ScalarBoolean):
        return bool(data)
    for plain in (str, int, float):
        if isinstance(data, plain):
            return plain(data)
    return data


def _mapping(data: CommentedMap, place: Place, numbers: Iterator[int]) -> Mapped:
    mapped = Mapped(place)
    known = data.lc.data or {}
    for key, value in data.items():
        # A key that came through a merge (<<) has no position of its own.
        line, column = known[key][:2] if key in known else (place.line - 1, place.column - 1)
        mapped.places[key] = Place(place.file, line + 1, column + 1, place.below(key).key)
        mapped[key] = _located(value, mapped.places[key], numbers)
    return mapped

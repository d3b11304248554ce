"""What is wrong with a configuration: where, what was found, and what was expected instead."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from dpgateway.errors import ConfigurationError

LONGEST_QUOTE = 60


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a value stands: ``line`` and ``column`` count from 1; line 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    """The path within the file, like ``resources[0].timeouts.prepare``."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def below(self, *steps: object) -> Place:
        """The same line and column, with a longer key."""
        key = self.key
        for step in steps:
            key = key_path(key, step)
        return Place(self.file, self.line, self.column, key)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong. Its text is one line; an empty ``found``, ``expected`` or ``hint`` is left out."""

    file: str
    line: int
    column: int
    key: str
    found: str = ""
    expected: str = ""
    hint: str = ""

    def __str__(self) -> str:
        where = ": ".join(part for part in (str(Place(self.file, self.line)), self.key) if part)
        found = self.found and f"found {self.found}"
        expected = self.expected and f"expected {self.expected}"
        what = ", ".join(part for part in (found, expected) if part)
        return f"{where}: " + "; ".join(part for part in (what, self.hint) if part)


class InvalidConfiguration(ConfigurationError):
    """The configuration can't be used. ``problems`` holds everything that is wrong with it, in the files' order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Wrong(ValueError):
    """A value isn't what was expected; whoever knows the place makes it a :class:`Problem`."""

    def __init__(self, found: str, expected: str, hint: str = "") -> None:
        super().__init__(found, expected, hint)
        self.found, self.expected, self.hint = found, expected, hint

    def __str__(self) -> str:
        return "; ".join(part for part in (f"found {self.found}, expected {self.expected}", self.hint) if part)

    def at(self, place: Place) -> Problem:
        return Problem(place.file, place.line, place.column, place.key, self.found, self.expected, self.hint)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sorted by file, line and column, each once."""
    return tuple(sorted(set(problems)))


def key_path(parent: str, step: object) -> str:
    """``parent`` and one more step: ``a.b``, ``a[0]``, or ``a["x/y"]`` for a key that isn't a plain word."""
    if isinstance(step, int):
        return f"{parent}[{step}]"
    text = str(step)
    if not text.replace("-", "_").isidentifier():
        return f"{parent}[{json.dumps(text)}]"
    return f"{parent}.{text}" if parent else text


def describe(value: object) -> str:
    """``value`` as it is named in an error: as YAML writes it, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if not isinstance(value, str):
        return str(value)
    text = value if len(value) <= LONGEST_QUOTE else value[:LONGEST_QUOTE] + "..."
    return json.dumps(text, ensure_ascii=False)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint that names the known word closest to ``word``; empty if none is close."""
    close = get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""

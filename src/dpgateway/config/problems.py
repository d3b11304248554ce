"""Errors of a configuration: a place, the finding, and the expectation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpgateway.errors import ConfigurationError, encodable

LONGEST_QUOTE = 60
LONGEST_TEXT = 500
"""Characters."""
MOST_TOLD = 100
"""Problems; the largest file can contain a hundred thousand."""
_NO_SPACE = re.compile(r"([A-Za-z_][\w-]*):(?!//)(\S.*)")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of a value. ``line`` and ``column`` count from 1; line 0 is the whole file."""

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    """The path within the file, like ``resources[0].timeouts.prepare``."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def below(self, *steps: object) -> Place:
        """The same line and column with a longer key: ``a.b``, ``a[0]``, or ``a["x/y"]`` if it isn't an identifier."""
        key = self.key
        for step in steps:
            if isinstance(step, int):
                key += f"[{step}]"
            elif not str(step).replace("-", "_").isidentifier():
                key += f"[{shown(str(step))}]"
            else:
                key += f".{shortened(str(step))}" if key else shortened(str(step))
        return replace(self, key=key)


NOWHERE = Place("")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One error. Its text is one line; an empty ``found``, ``expected`` or ``hint`` is left out."""

    place: Place
    found: str = ""
    expected: str = ""
    hint: str = ""

    def __str__(self) -> str:
        found, expected = self.found and f"found {self.found}", self.expected and f"expected {self.expected}"
        text = "; ".join(filter(None, (", ".join(filter(None, (found, expected))), self.hint)))
        return ": ".join(filter(None, (str(self.place), self.place.key, text)))


class InvalidConfiguration(ConfigurationError):
    """The configuration can't be used. ``problems``: all of its errors, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(in_lines(self.problems)))


class Wrong(ValueError):
    """An unexpected value. The caller, which knows its place, converts this to a :class:`Problem`."""

    def __init__(self, found: str = "", expected: str = "", hint: str = "") -> None:
        super().__init__(found, expected, hint)
        self.found, self.expected, self.hint = found, expected, hint

    def __str__(self) -> str:
        return str(self.at(NOWHERE))

    def at(self, place: Place) -> Problem:
        return Problem(place, *(shortened(text, LONGEST_TEXT) for text in (self.found, self.expected, self.hint)))


def in_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """A line per problem, at most MOST_TOLD, and then their number."""
    yield from map(str, problems[:MOST_TOLD])
    if len(problems) > MOST_TOLD:
        yield f"and {len(problems) - MOST_TOLD} more: these are the first {MOST_TOLD} of {len(problems)} problems"


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sorted by file, line and column, without duplicates."""
    return tuple(sorted(set(problems)))


def shown(value: object) -> str:
    """``value`` in an error: a scalar in YAML, shortened; a list or mapping only by its kind."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if not isinstance(value, str | Path):
        return str(value)
    return encodable(json.dumps(shortened(str(value)), ensure_ascii=False))


def shortened(text: str, longest: int = LONGEST_QUOTE) -> str:
    return text if len(text) <= longest else text[:longest] + "..."


def missing_space(value: object) -> str:
    """A hint for ``key:value`` and ``-item``, which are strings in YAML; empty for anything else."""
    text = value if isinstance(value, str) else ""
    if match := _NO_SPACE.fullmatch(shortened(text)):
        return f"write {match[1]}: {match[2]}, with a space after the colon"
    return f"write - {shortened(text[1:])}, with a space after the dash" if re.match(r"-[A-Za-z_]", text) else ""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint with the closest known word; empty if none is close."""
    from difflib import get_close_matches  # noqa: PLC0415  it takes memory, and most configurations are right

    close = get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""

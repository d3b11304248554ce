"""Plain values, each with the place where it was written; what is said of a key gets the place of that key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpgateway.config.problems import LONGEST_TEXT, NOWHERE, Place, Problem, Wrong, shortened, shown

_INDEX = re.compile(r"\[(\d+)\]")
_EXPECTED = re.compile(r"expected (.+?)(?:, found (.+))?")
_NAMED = re.compile(r"(\w+)((?:\[\d+\])*)")


@dataclass(frozen=True, slots=True)
class Written:
    """A value as it was written: a scalar, or a list of these, or a mapping of these by their keys."""

    value: Any
    place: Place
    text: str = ""
    """Of a number: how it was written."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with it before anybody knows what it should be. A scalar that has any has no value."""

    @property
    def shown(self) -> str:
        return shortened(self.text) or shown(self.value)

    def below(self, step: str) -> Written | None:
        """What a mapping has at the key ``step``, if it has that key."""
        inner: Written | None = self.value.get(step) if isinstance(self.value, dict) else None
        return inner

    def at(self, *steps: object) -> Place:
        """Where ``steps`` lead to from here; for what isn't there, the place of the nearest thing above it."""
        return self.part(*steps).place

    def part(self, *steps: object) -> Written:
        """What ``steps`` lead to from here; nothing, if that isn't there."""
        here = self
        for depth, step in enumerate(steps):
            inner = dict(enumerate(here.value)) if isinstance(here.value, list) else here.value
            if not isinstance(inner, dict) or step not in inner:
                return Written(None, here.place.below(*steps[depth:]))
            here = inner[step]
        return here

    def parts(self) -> Iterator[Written]:
        """The value itself, and everything in it."""
        yield self
        if isinstance(self.value, dict | list):
            for inner in self.value.values() if isinstance(self.value, dict) else self.value:
                yield from inner.parts()

    def plain(self) -> Any:  # noqa: ANN401
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: inner.plain() for key, inner in self.value.items()}
        return [inner.plain() for inner in self.value] if isinstance(self.value, list) else self.value


def unplaced(value: object, place: Place = NOWHERE) -> Written:
    """A plain value that was written nowhere; the keys in it are counted from ``place``."""
    if isinstance(value, dict):
        wrong = tuple(not_text(key).at(place.below(key)) for key in value if not isinstance(key, str))
        return Written({key: unplaced(inner, place.below(key)) for key, inner in value.items()}, place, problems=wrong)
    if isinstance(value, list):
        return Written([unplaced(inner, place.below(index)) for index, inner in enumerate(value)], place)
    return Written(value, place)


def not_text(key: object) -> Wrong:
    text = shortened(str(key))
    return Wrong(f"the key {text}", "keys that are strings", f'put it in quotes: "{text}"')


def refusal(text: str, written: Written) -> Problem:
    """What a dataclass says of ``written``, at the key that the text begins with, if it begins with one: ``baud: ...``,
    ``X.baud``, ``paths[0]: ...``. Of ``expected ..., found ...`` the parts are taken.
    """
    text = " ".join(text.split())
    words = text.split()
    match = _NAMED.fullmatch(words[0].strip(":,'\"`").rpartition(".")[2]) if words else None
    if match is None or not written.below(match[1]):
        return _in_parts(text, written.place, "")
    head, _, rest = text.partition(": ")
    about = rest if rest and " " not in head else text  # the place says the key already
    steps = (match[1], *map(int, _INDEX.findall(match[2])))
    part = written.part(*steps)
    return _in_parts(about, part.place, part.shown if part.value is not None else "")


def _in_parts(text: str, place: Place, found: str) -> Problem:
    match = _EXPECTED.fullmatch(text)
    if match is None:
        return Problem(place, found, hint=shortened(text, LONGEST_TEXT))
    return Problem(place, shortened(match[2] or found, LONGEST_TEXT), shortened(match[1], LONGEST_TEXT))

"""Plain values with their places in the files, so that errors name the place of a key."""

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
    """A value with its place: a scalar, a list of Written, or a mapping of keys to Written."""

    value: Any
    place: Place
    text: str = ""
    """The spelling of a number."""
    problems: tuple[Problem, ...] = ()
    """The errors that it has for any type. The value of a scalar with errors is None."""

    @property
    def shown(self) -> str:
        return shortened(self.text) or shown(self.value)

    def below(self, step: str) -> Written | None:
        """The value of a mapping's key, if the mapping has it."""
        inner: Written | None = self.value.get(step) if isinstance(self.value, dict) else None
        return inner

    def at(self, *steps: object) -> Place:
        """The place of the value at ``steps``; if it isn't there, that of its nearest parent, with the whole key."""
        return self.part(*steps).place

    def part(self, *steps: object) -> Written:
        """The value at ``steps``; None at its place if it isn't there."""
        here = self
        for depth, step in enumerate(steps):
            inner = dict(enumerate(here.value)) if isinstance(here.value, list) else here.value
            if not isinstance(inner, dict) or step not in inner:
                return Written(None, here.place.below(*steps[depth:]))
            here = inner[step]
        return here

    def parts(self) -> Iterator[Written]:
        """The value and all inner values."""
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
    """A plain value without a file; its keys are relative to ``place``."""
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
    """Converts a dataclass's error about ``written``. A text that begins with a key (``baud: ...``, ``X.baud``,
    ``paths[0]: ...``) gets the place of that key; ``expected ..., found ...`` is split.
    """
    text = " ".join(text.split())
    words = text.split()
    named = _NAMED.fullmatch(words[0].strip(":,'\"`").rpartition(".")[2]) if words else None
    place, found = written.place, ""
    if named is not None and written.below(named[1]):
        part = written.part(named[1], *map(int, _INDEX.findall(named[2])))
        place, found = part.place, part.shown if part.value is not None else ""
        head, _, rest = text.partition(": ")
        text = rest if rest and " " not in head else text  # the place has the key
    match = _EXPECTED.fullmatch(text)
    if match is None:
        return Problem(place, found, hint=shortened(text, LONGEST_TEXT))
    return Problem(place, shortened(match[2] or found, LONGEST_TEXT), shortened(match[1], LONGEST_TEXT))

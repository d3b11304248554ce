"""Plain values, each with the place where it was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpgateway.config.problems import Place, Problem, Wrong, shortened, shown


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


def unplaced(value: object, place: Place = Place("")) -> Written:  # noqa: B008  a Place is frozen
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

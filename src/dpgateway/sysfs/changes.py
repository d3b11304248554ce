"""What an answer depended on, and what events say has changed: all else needn't be read again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, TypeVar

T = TypeVar("T")
Asked = str | tuple[str, str]
"""A place; or an object and its attribute, which counts as the object's place."""
Key = TypeVar("Key", bound=Hashable)

UNTOLD = "*"
"""Stands for what no event tells of, such as a file in /proc. Every change may have changed it."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What events have named."""

    objects: frozenset[str] = frozenset()
    """Of the kernel's uevents: the paths of objects, relative to /sys."""
    files: frozenset[str] = frozenset()
    """Of inotify: the absolute paths of names, as this process sees them."""

    def touched(self, traces: Iterable[tuple[Key, Iterable[str]]]) -> set[Key]:
        """The keys of the answers that may be others now.

        An object's event may change all that is in it, and everything of what it is in: an mdev takes one of its
        parent's ``available_instances``. A file's event is about that name, and what is below it.
        """
        exact = {UNTOLD, *self.files, *(place for path in self.objects for place in _line(path))}
        is_below = methodcaller("startswith", tuple(f"{path}/" for path in (*self.objects, *self.files)))
        # of thousands of traces few are touched: both tests run in C
        return {key for key, trace in traces if not exact.isdisjoint(trace) or any(map(is_below, trace))}


class Trace:
    """Notes what answers depend on. All that read in one look share one."""

    def __init__(self) -> None:
        self.asked: set[Asked] = set()
        self._answers: dict[Hashable, tuple[Any, tuple[Asked, ...]]] = {}

    def note(self, place: str) -> None:
        self.asked.add(place)

    @contextmanager
    def into(self, asked: set[Asked]) -> Iterator[None]:
        """What is asked meanwhile is noted there, and nowhere else."""
        before, self.asked = self.asked, asked
        try:
            yield
        finally:
            self.asked = before

    def once(self, key: Hashable, ask: Callable[[], T]) -> T:
        """The answer that was given before, if it was asked before. What it depended on is noted each time."""
        if key not in self._answers:
            asked: set[Asked] = set()
            with self.into(asked):
                given = ask()
            self._answers[key] = given, tuple(asked)
        answer: T
        answer, before = self._answers[key]
        self.asked.update(before)
        return answer


def places(asked: Iterable[Asked]) -> tuple[str, ...]:
    """A trace, as it is kept."""
    return tuple({one if isinstance(one, str) else one[0] for one in asked})


def _line(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]

"""Dependencies of answers, and the places that events name: an answer that no event touches needn't be read again.

Theory. Each read on behalf of an answer notes a *place* in the look's trace: an object of sysfs by its path, or a
file elsewhere by its absolute path as this process sees it. Events name places in the same words. An event touches an
answer if one of its places is the event's, below it, or, of a uevent, above it: an mdev takes one of its parent's
``available_instances``. A place that no event ever names is ``UNTOLD``, which every event touches.

Events for the second kind of place come only while its directory is watched. So the trace also has these directories,
and the names in them that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, TypeVar

from dpgateway.sysfs.patterns import name_matches

T = TypeVar("T")
Asked = str | tuple[str, str]
"""A place; or an object and its attribute, which counts as the object's place."""
Key = TypeVar("Key", bound=Hashable)

UNTOLD = "*"
"""A place without events, such as a file in /proc. Any event may have changed it."""


@dataclass(frozen=True, slots=True)
class ChangedPlaces:
    """The places that events named."""

    objects: frozenset[str] = frozenset()
    """Paths of objects relative to /sys, from the kernel's uevents."""
    files: frozenset[str] = frozenset()
    """Absolute paths as this process sees them, from inotify."""

    def touched(self, traces: Iterable[tuple[Key, Iterable[str]]]) -> set[Key]:
        """The keys of the answers that may have changed.

        An object's event may change its descendants, and the attributes of its ancestors: an mdev takes one of its
        parent's ``available_instances``. A file's event may change that file and everything below it.
        """
        exact = {UNTOLD, *self.files, *self.objects}
        exact.update(place for path in self.objects for place in above(path))
        is_below = methodcaller("startswith", tuple(f"{path}/" for path in (*self.objects, *self.files)))
        # a look tests thousands of traces, most of them untouched: both tests run in C
        return {key for key, trace in traces if not exact.isdisjoint(trace) or any(map(is_below, trace))}


@dataclass(slots=True)
class Interest:
    """The names in one directory that matter."""

    names: set[str] = field(default_factory=set)
    globs: set[str] = field(default_factory=set)

    def __contains__(self, name: str) -> bool:
        return name in self.names or any(name_matches(name, glob) for glob in self.globs)

    def add(self, other: Interest) -> None:
        self.names |= other.names
        self.globs |= other.globs

    def __le__(self, other: Interest) -> bool:
        return self.names <= other.names and self.globs <= other.globs


class Trace:
    """Records the places that answers depend on. All readers of one look share it."""

    def __init__(self) -> None:
        self.asked: set[Asked] = set()
        """The notes of the block at hand: see ``into``."""
        self.directories: dict[str, Interest] = {}
        """The names that matter to any answer, keyed by their directory's absolute path as this process sees it."""
        self._answers: dict[Hashable, tuple[Any, tuple[Asked, ...]]] = {}
        """Cached answers, each with its notes, keyed by the question."""

    def note(self, place: str) -> None:
        self.asked.add(place)

    @contextmanager
    def into(self, asked: set[Asked]) -> Iterator[None]:
        """Collects the notes of the block in ``asked`` alone."""
        before, self.asked = self.asked, asked
        try:
            yield
        finally:
            self.asked = before

    def once(self, key: Hashable, ask: Callable[[], T]) -> T:
        """The cached answer for ``key``, or a new one. Its dependencies are noted each time."""
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
    """The compact form of a trace, to be kept: places only."""
    return tuple({one if isinstance(one, str) else one[0] for one in asked})


def above(path: str) -> Iterator[str]:
    """The ancestors of a path, nearest first."""
    while path := path.rpartition("/")[0]:
        yield path

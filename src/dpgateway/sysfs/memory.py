"""Answers cached from one look to the next.

Theory. A survey caches three kinds of answers: the parts of each object (``seen``), the grouping of all parts into
devices (``grouped``), and the devices (``kept``). Answers about objects and devices have a trace, the places that they
depended on. ``forget`` drops the answers that an event touches, the look computes those anew, and ``settle`` ends it.

- A device and its objects are kept together or not at all, because a device shows attributes that were read for its
  objects. So a device's trace includes its objects' traces, and to forget a device is to forget its objects.
- A new answer that equals the dropped one is replaced by it. So a look knows by identity that no grouping is needed,
  and others share a device's value.
- A matched object in no device isn't kept; each look reads it again.
- ``concern`` decides which uevents may touch anything. It only grows until everything is forgotten. An entry too many
  costs a look that finds nothing new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Generic, TypeVar

from dpgateway.sysfs.changes import UNTOLD, ChangedPlaces, Interest, above
from dpgateway.sysfs.grouping import Part, Unoffered, Whole
from dpgateway.sysfs.naming import Names
from dpgateway.sysfs.objects import Object

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Sighting:
    """The answer about an object."""

    kinds: tuple[int, ...]
    """The alternatives whose subsystem is the object's."""
    parts: tuple[Part, ...] = ()
    left: Unoffered | None = None
    trace: tuple[str, ...] = ()
    """The trace of an object without parts; otherwise the device has it."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[D]):
    """The answer about a device."""

    whole: Whole
    device: D
    trace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grouped:
    """The grouping of all parts, and the objects left over."""

    parts: Sequence[Part] = ()
    wholes: Sequence[Whole] = ()
    """The devices, sorted by id."""
    left: Mapping[Object, Unoffered] = field(default_factory=dict)
    claimed: Mapping[str, Sequence[Whole]] = field(default_factory=dict)
    """The wholes that share an id, keyed by it."""
    shared: frozenset[str] = frozenset()
    """The paths of objects with parts in several devices."""

    @classmethod
    def of(cls, parts: Sequence[Part], wholes: Iterable[Whole], left: Mapping[Object, Unoffered]) -> Grouped:
        inorder = tuple(sorted(wholes, key=attrgetter("id")))
        twice = {id_ for id_, count in Counter(one.id for one in inorder).items() if count > 1}
        claimed = {id_: [one for one in inorder if one.id == id_] for id_ in twice}
        uses = Counter(path for one in inorder for path in set(one.paths))
        return cls(parts, inorder, left, claimed, frozenset(path for path, count in uses.items() if count > 1))


class Memory(Generic[D]):
    """The cache of one survey, used by one look at a time."""

    def __init__(self) -> None:
        self.names = Names()
        self.seen: dict[str, Sighting] = {}
        """Answers about objects, keyed by path."""
        self.kept: dict[str, Kept[D]] = {}
        """Answers about devices, keyed by id."""
        self.concern: tuple[Set[str], Set[str]] | None = None
        """The places whose uevents matter, and their ancestors; None before the first look. Replaced, never mutated,
        because other threads read it."""
        self._clear()

    def _clear(self) -> None:
        self._seen_before, self.seen = self.seen, {}
        self._kept_before, self.kept = self.kept, {}
        self.known: dict[str, dict[str, Object]] = {}
        """Objects, keyed by the directory that lists them and by their name there."""
        self.grouped = Grouped()
        self.directories: dict[str, Interest] = {}
        """The names to watch, keyed by directory as this process sees it."""
        self._elsewhere: set[str] = set()
        """Places in /sys that an object's answer depended on, other than its ancestors and descendants."""

    def forget(self, news: ChangedPlaces | None) -> None:
        """Drops the answers that these events may have changed; None: all answers."""
        if news is None:
            self._clear()
            return

        # a touched device takes its objects with it; the dropped answers stay at hand in case the new ones are equal
        paths = news.touched((path, one.trace) for path, one in self.seen.items())
        ids = news.touched((id_, one.trace) for id_, one in self.kept.items())
        self._kept_before = {id_: self.kept.pop(id_) for id_ in ids}
        paths.update(path for one in self._kept_before.values() for path in one.whole.paths)
        self._seen_before = {path: self.seen.pop(path) for path in paths if path in self.seen}
        for directory, names in self.known.items():
            self.known[directory] = {name: thing for name, thing in names.items() if thing.path in self.seen}

    def care(self, path: str, trace: Iterable[str]) -> None:
        """Adds a trace of the object at ``path`` to the concern, except for absolute paths: inotify watches those."""
        inside = f"{path}/"
        self._elsewhere.update(
            place
            for place in trace
            if place != path and not place.startswith((inside, "/", UNTOLD)) and not path.startswith(f"{place}/")
        )

    def see(self, path: str, seen: Sighting) -> Sighting:
        before = self._seen_before.get(path)
        if before is not None and before.parts == seen.parts:
            seen = replace(seen, parts=before.parts)
        self.seen[path] = seen
        return seen

    def keep(self, kept: Kept[D]) -> Kept[D]:
        before = self._kept_before.pop(kept.whole.id, None)
        if before is not None and before.whole == kept.whole and before.device == kept.device:
            kept = replace(kept, device=before.device)
        self.kept[kept.whole.id] = kept
        return kept

    def settle(self, there: Set[str], ids: Set[str], directories: Mapping[str, Interest]) -> None:
        """Ends a look that found these objects and devices: drops the answers about all others."""
        self._seen_before, self._kept_before = {}, {}
        for directory, interest in directories.items():
            self.directories.setdefault(directory, Interest()).add(interest)
        places = self._elsewhere.union(there)
        if self.concern is None or places != self.concern[0]:
            self.concern = frozenset(places), frozenset(one for place in places for one in above(place))
        if not self.seen.keys() <= there:
            self.seen = {path: one for path, one in self.seen.items() if path in there}
        if not self.kept.keys() <= ids:
            self.kept = {id_: one for id_, one in self.kept.items() if id_ in ids}

        # an object in no kept device isn't kept; the usual case without one is detected by counting
        wholes = self.grouped.wholes
        if len(wholes) == len(ids) and sum([len(one.parts) for one in wholes]) == len(self.grouped.parts):
            return
        used = {id(part) for one in self.kept.values() for part in one.whole.parts}
        if loose := {path for path, one in self.seen.items() if not used.issuperset(map(id, one.parts))}:
            self.seen = {path: one for path, one in self.seen.items() if path not in loose}
            self.kept = {id_: one for id_, one in self.kept.items() if loose.isdisjoint(one.whole.paths)}

"""Answers that one look leaves for the next.

Theory. A survey has three kinds of answers: what came of each object (``seen``), how the parts of objects make devices
(``grouped``), and what each device is (``kept``). Objects and devices have a trace: the places on which the answer
depended. ``forget`` drops the answers that an event touches, and the look makes those anew.

- A device and its objects are kept together or not at all, because a device shows attributes that were read for its
  objects. So a device's trace includes its objects' traces, and to forget a device is to forget its objects.
- An answer that is made anew and is equal stays the very same value. So a look knows by identity that nothing has to be
  grouped again, and others share the value of a device.
- An object that matches and is no part of a device isn't kept: it is looked at each time.
- ``concern`` says which uevents may touch anything. It only grows until everything is forgotten. An entry too many
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
    """The alternatives that are about its subsystem."""
    parts: tuple[Part, ...] = ()
    left: Unoffered | None = None
    trace: tuple[str, ...] = ()
    """Of an object without parts; else the device has it."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[D]):
    """The answer about a device."""

    whole: Whole
    device: D
    trace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grouped:
    """The answer about all parts together, and the objects left over."""

    parts: Sequence[Part] = ()
    wholes: Sequence[Whole] = ()
    """In the order of their ids."""
    left: Mapping[Object, Unoffered] = field(default_factory=dict)
    claimed: Mapping[str, Sequence[Whole]] = field(default_factory=dict)
    """The wholes of an id that several have."""
    shared: frozenset[str] = frozenset()
    """The paths of objects that are parts of several devices."""

    @classmethod
    def of(cls, parts: Sequence[Part], wholes: Iterable[Whole], left: Mapping[Object, Unoffered]) -> Grouped:
        inorder = tuple(sorted(wholes, key=attrgetter("id")))
        twice = {id_ for id_, count in Counter(one.id for one in inorder).items() if count > 1}
        claimed = {id_: [one for one in inorder if one.id == id_] for id_ in twice}
        uses = Counter(path for one in inorder for path in set(one.paths))
        return cls(parts, inorder, left, claimed, frozenset(path for path, count in uses.items() if count > 1))


class Memory(Generic[D]):
    """Of one survey, whose looks use it one after the other."""

    def __init__(self) -> None:
        self.names = Names()
        self.seen: dict[str, Sighting] = {}
        """By the objects' paths."""
        self.kept: dict[str, Kept[D]] = {}
        """By the devices' ids."""
        self.concern: tuple[Set[str], Set[str]] | None = None
        """The places whose uevents matter, and their ancestors; None before the first look. Replaced, never changed,
        because other threads read it."""
        self._clear()

    def _clear(self) -> None:
        self._seen_before, self.seen = self.seen, {}
        self._kept_before, self.kept = self.kept, {}
        self.known: dict[str, dict[str, Object]] = {}
        """Objects by the directory that lists them, and by their names there."""
        self.grouped = Grouped()
        self.directories: dict[str, Interest] = {}
        """The names that matter, as this process sees them."""
        self._elsewhere: set[str] = set()
        """Places in /sys on which an object's answer depended, without its ancestors and descendants."""

    def forget(self, news: ChangedPlaces | None) -> None:
        """Drops what these events may have changed; None: everything."""
        if news is None:
            self._clear()
            return
        paths = news.touched((path, one.trace) for path, one in self.seen.items())
        ids = news.touched((id_, one.trace) for id_, one in self.kept.items())
        self._kept_before = {id_: self.kept.pop(id_) for id_ in ids}
        paths.update(path for one in self._kept_before.values() for path in one.whole.paths)
        self._seen_before = {path: self.seen.pop(path) for path in paths if path in self.seen}
        for directory, names in self.known.items():
            self.known[directory] = {name: thing for name, thing in names.items() if thing.path in self.seen}

    def care(self, path: str, trace: Iterable[str]) -> None:
        """Adds a trace of the object at ``path`` to the concern. Files, which have absolute paths, are watched."""
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
        """At the end of a look that found these objects and devices."""
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

        # usually each object is a part of a device that is kept, which is quick to see
        wholes = self.grouped.wholes
        if len(wholes) == len(ids) and sum([len(one.parts) for one in wholes]) == len(self.grouped.parts):
            return
        used = {id(part) for one in self.kept.values() for part in one.whole.parts}
        if loose := {path for path, one in self.seen.items() if not used.issuperset(map(id, one.parts))}:
            self.seen = {path: one for path, one in self.seen.items() if path not in loose}
            self.kept = {id_: one for id_, one in self.kept.items() if loose.isdisjoint(one.whole.paths)}

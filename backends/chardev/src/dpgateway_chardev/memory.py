"""What is kept of one look for the next: all that no event has touched since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import attrgetter

from dpgateway import Device
from dpgateway.sysfs import UNTOLD, Changes, Interest, Object
from dpgateway_chardev.given import Given
from dpgateway_chardev.grouping import Left, Part, Whole
from dpgateway_chardev.naming import Names
from dpgateway_chardev.probing import Check

PROOF = 30.0
"""Seconds without a look at everything, after which a change leads to one."""


@dataclass(frozen=True, slots=True)
class MatchedDevice(Device):
    """A device, the objects that it is made of, and what a container gets with it."""

    parts: tuple[Part, ...] = ()
    given: Given | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of an object."""

    kinds: tuple[int, ...]
    """The alternatives that are about its subsystem."""
    parts: tuple[Part, ...] = ()
    left: Left | None = None
    trace: tuple[str, ...] = ()
    """Of what is no part of a device; else the device has it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A device."""

    whole: Whole
    device: MatchedDevice
    checks: Sequence[Check]
    trace: tuple[str, ...]
    """Also that of its objects, because a device and its objects are kept together, or not at all."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """What grouping made of parts, and what it left over."""

    parts: Sequence[Part] = ()
    wholes: Sequence[Whole] = ()
    """In the order of their ids."""
    left: dict[Object, Left] = field(default_factory=dict)
    claimed: Mapping[str, Sequence[Whole]] = field(default_factory=dict)
    """The ids that several have, and which these are."""
    shared: frozenset[str] = frozenset()
    """The paths of objects that are parts of several."""

    @classmethod
    def of(cls, parts: Sequence[Part], wholes: Iterable[Whole], left: dict[Object, Left]) -> Grouped:
        inorder = tuple(sorted(wholes, key=attrgetter("id")))
        twice = {id_ for id_, count in Counter(one.id for one in inorder).items() if count > 1}
        claimed = {id_: [one for one in inorder if one.id == id_] for id_ in twice}
        uses = Counter(path for one in inorder for path in set(one.paths))
        return cls(parts, inorder, left, claimed, frozenset(path for path, count in uses.items() if count > 1))


class Memory:
    """Of one driver, whose looks use it one after the other."""

    def __init__(self) -> None:
        self.names = Names()
        self.seen: dict[str, Seen] = {}
        """What came of objects, by their paths."""
        self.kept: dict[str, Kept] = {}
        """Devices by their ids."""
        self._clear()

    def _clear(self) -> None:
        """Everything is looked at again."""
        self._seen_before, self.seen = self.seen, {}
        self._kept_before, self.kept = self.kept, {}
        self.known: dict[str, dict[str, Object]] = {}
        """Objects by the directory that lists them, and by their names there."""
        self.grouped = Grouped()
        self.directories: dict[str, Interest] = {}
        """The names that matter, as this process sees them."""
        self._fresh: set[str] | None = None
        """The paths of the objects that this look has read; None: all of them."""
        self._doubtful: set[str] | None = set()
        self._cared: set[str] = set()
        """What answers depended on elsewhere in /sys. It grows until everything is looked at again; what is too much
        leads to a look that finds nothing new."""
        self.concern: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        """The places whose uevents matter, and what these are in."""

    def forget(self, changes: Changes | None) -> None:
        """What these may have changed; None: everything."""
        if changes is None or self._doubtful is None:
            self._clear()
            return
        paths = self._doubtful | changes.touched((path, one.trace) for path, one in self.seen.items())
        ids = changes.touched((id_, one.trace) for id_, one in self.kept.items())
        if self._doubtful:
            ids |= {id_ for id_, one in self.kept.items() if not paths.isdisjoint(one.whole.paths)}
        self._kept_before = {id_: self.kept.pop(id_) for id_ in ids}
        paths.update(path for one in self._kept_before.values() for path in one.whole.paths)
        self._seen_before = {path: self.seen.pop(path) for path in paths if path in self.seen}
        for directory, names in self.known.items():
            self.known[directory] = {name: thing for name, thing in names.items() if thing.path in self.seen}
        self._fresh, self._doubtful = set(), set()

    def care(self, path: str, trace: Iterable[str]) -> None:
        """On what the object at ``path`` depended. What is in it, and what it is in, is known by the path, and files,
        which have absolute paths, are watched; what remains is elsewhere in /sys.
        """
        inside = f"{path}/"
        self._cared.update(
            place
            for place in trace
            if place != path and not place.startswith((inside, "/", UNTOLD)) and not path.startswith(f"{place}/")
        )

    def see(self, path: str, seen: Seen) -> Seen:
        """The parts stay the very same, if they are the same, so that nothing has to be grouped again."""
        before = self._seen_before.get(path, Seen(())).parts
        if len(before) == len(seen.parts) and all(map(Part.same, before, seen.parts)):
            seen = replace(seen, parts=before)
        self.seen[path] = seen
        if self._fresh is not None:
            self._fresh.add(path)
        return seen

    def keep(self, kept: Kept) -> Kept:
        """The device stays the very same, if it is the same, because others have it, too."""
        before = self._kept_before.pop(kept.whole.id, None)
        if before is not None and before.whole.same(kept.whole) and before.device == kept.device:
            kept = replace(kept, device=before.device)
        self.kept[kept.whole.id] = kept
        return kept

    def _whole(self, ids: Set[str]) -> bool:
        """Whether each object is a part of a device that is kept."""
        wholes = self.grouped.wholes
        return len(wholes) == len(ids) and sum([len(one.parts) for one in wholes]) == len(self.grouped.parts)

    def settle(self, there: Set[str], ids: Set[str]) -> None:
        """At the end of a look, which found only these objects and devices. What isn't a device, though it matches, is
        looked at again each time.
        """
        self._seen_before, self._kept_before = {}, {}
        cared = self._cared.union(there)
        if cared != self.concern[0]:
            self.concern = frozenset(cared), frozenset(above for place in cared for above in _above(place))
        if not self.seen.keys() <= there:
            self.seen = {path: one for path, one in self.seen.items() if path in there}
        if not self.kept.keys() <= ids:
            self.kept = {id_: one for id_, one in self.kept.items() if id_ in ids}
        if self._whole(ids):
            return
        used = {id(part) for one in self.kept.values() for part in one.whole.parts}
        if loose := {path for path, one in self.seen.items() if not used.issuperset(map(id, one.parts))}:
            self.seen = {path: one for path, one in self.seen.items() if path not in loose}
            self.kept = {id_: one for id_, one in self.kept.items() if loose.isdisjoint(one.whole.paths)}

    def doubt(self) -> None:
        """What this look has read is read again in the next one: it may have changed before it was watched."""
        self._doubtful = self._fresh

    def watch(self, directories: Mapping[str, Interest]) -> None:
        for directory, interest in directories.items():
            self.directories.setdefault(directory, Interest()).add(interest)


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


class Proof:
    """When everything is looked at, though events say what has changed: then an event that was lost does no harm."""

    def __init__(self) -> None:
        self.wanted = True
        """Whether everything is looked at the next time. Anybody may want that."""
        self._last = 0.0

    def due(self, changes: Changes | None, now: float) -> Changes | None:
        """What the next look is about; None: everything. ``now``: seconds. What events name comes before the proof,
        because it is quick; nobody has asked for the proof yet.
        """
        if changes is None or self.wanted:
            self._last, self.wanted = now, False
            return None
        self.wanted = now - self._last > PROOF
        return changes

"""From matched objects of sysfs to devices, look by look.

Theory. A ``Survey`` lives as long as its driver. Each ``find`` is one look in four steps: list the objects of the
selection's subsystems, match each into parts, group the parts into devices, and have the driver make a value of each
device. With ``news`` a look reads only the objects that those events touch, and takes all other answers from memory
(memory.py). A ``FollowedSurvey`` (following.py) collects the news.

- Objects are listed in each look, so that one without an event is still noticed; only reading them is saved.
- A device can only be made while the attributes of all its objects are at hand. If one of them was read in an earlier
  look, the look fails (None, False), and ``_looked`` repeats it with an empty memory. After an exception the memory is
  cleared, too, because it may be half updated.
- A new object's places are known at the end of its look. A uevent that comes during a look and concerns none of the
  known places is kept until then; if it concerns one by then, ``missed`` says so.
- The driver's ``maker`` is called once per look, and returns the function that makes a device of a ``FoundDevice``. A
  device is kept over many looks, so it must not keep the ``FoundDevice``, which has everything read in its look.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Generic

from dpgateway.sysfs.changes import Asked, ChangedPlaces, Interest, places
from dpgateway.sysfs.explaining import tried
from dpgateway.sysfs.found import FoundDevice
from dpgateway.sysfs.grouping import Grouping, Part, Unoffered, Whole
from dpgateway.sysfs.matching import Mismatch
from dpgateway.sysfs.memory import D, Grouped, Kept, Memory, Sighting
from dpgateway.sysfs.naming import Names
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.patterns import value_matches
from dpgateway.sysfs.selection import Selection
from dpgateway.sysfs.uevents import Uevent

Maker = Callable[[Look], Callable[[FoundDevice], D]]


@dataclass(frozen=True, slots=True)
class Explained:
    """An object's result: the ids of its devices, or why it has none."""

    name: str
    """The object's subsystem and name, for people: ``tty ttyUSB0``."""
    path: str
    """The object's path on the host: ``/sys/devices/...``."""
    ids: tuple[str, ...] = ()
    why: Unoffered | None = None


class Survey(Generic[D]):
    """Finds the devices of one driver. One look at a time; ``concerns`` may be called from any thread."""

    def __init__(self, selection: Selection, maker: Maker[D], held: Callable[[], Iterable[str]] = tuple) -> None:
        """``held`` returns the ids that containers hold, from which groups are formed again after a restart."""
        self._selection, self._maker, self._held = selection, maker, held
        self.memory: Memory[D] = Memory()
        self.missed = False
        """Whether a change of what the last look found may have come during it, unnoticed."""
        self._hearing = threading.Lock()
        self._unmatched: dict[Uevent, None] | None = None
        """The uevents during a look that concern nothing known; None without a look. Under the lock."""
        self._left: Mapping[Object, Unoffered] = {}

    @property
    def notices(self) -> Mapping[str, None]:
        """The matched objects of the last look that can't be offered, with reasons; a set of texts."""
        return {f"/sys/{thing.path} can't be offered: {why}": None for thing, why in self._left.items()}

    @property
    def directories(self) -> Mapping[str, Interest]:
        """The directories outside sysfs to watch."""
        return self.memory.directories

    def concerns(self, event: Uevent) -> bool:
        """Whether an event may have changed a device: its object is of a matched subsystem, or is a place that an
        answer depends on, an ancestor of one, or a descendant.
        """
        with self._hearing:
            if not (touches := self._touches(event)) and self._unmatched is not None:
                self._unmatched[event] = None
        return touches

    def _touches(self, event: Uevent) -> bool:
        concern = self.memory.concern
        if concern is None or any(value_matches(event.subsystem, match.subsystem) for match in self._selection.match):
            return True
        inner, around = concern
        return event.path in around or any(one.path in inner for one in Object(event.path).line)

    def find(self, news: ChangedPlaces | None = None) -> Mapping[str, D]:
        """The devices, keyed by id. Answers that ``news`` doesn't touch come from memory; None: everything is read.
        Raises OSError if a directory of sysfs can't be listed.
        """
        return self._looked(news)[1]

    def explain(self, about: str | None = None) -> Iterator[Explained]:
        """The result for each object of the selection's subsystems, in a look at everything. Raises OSError.

        ``about``: only this object (a path below /sys or /dev, or a name) and its descendants, or else its nearest
        ancestor.
        """
        look, _ = self._looked(None)
        ids: dict[Object, set[str]] = {}
        for whole in self.memory.grouped.wholes:
            for part in whole.parts:
                ids.setdefault(part.found.thing, set()).add(whole.id)
        for one in tried(look, self._selection.match, about):
            subsystem, path = look.subsystem(one.thing), f"/sys/{one.thing.path}"
            name = f"{subsystem} {one.thing.kernel}" if isinstance(subsystem, str) else one.thing.kernel
            why = self._left.get(one.thing)
            if isinstance(one.result, Mismatch):
                key = "match" if len(self._selection.match) == 1 else f"match[{one.number}]"
                why = Unoffered(f"{key}.{one.result.test}", one.result.found, one.result.expected)
            elif why is None and one.thing not in ids:  # it matched and wasn't left over, so `parts` found none
                why = Unoffered("parts", "none", "at least one")
            yield Explained(name, path, () if why else tuple(sorted(ids[one.thing])), why)

    def again(self, id_: str, parts: Iterable[Part]) -> D:
        """A known device as it is now, without the memory. Raises OSError; ChangedError unless each part still matches,
        with the same names and group.
        """
        look = Look(self._selection.roots)
        grouping = Grouping(look, self._selection, Names())
        whole = Whole(id_, tuple([grouping.again(part) for part in parts]))
        return self._maker(look)(FoundDevice(look, self._selection, whole))

    def _looked(self, news: ChangedPlaces | None) -> tuple[Look, Mapping[str, D]]:
        """One look; if the memory doesn't suffice for it, another one at everything."""
        with self._hearing:
            self._unmatched = {}
        try:
            for known in (news, None):
                self.memory.forget(known)
                now = _OneLook(self._selection, self._maker, self.memory, self._held)
                if now.find():
                    break
        except BaseException:
            self.memory.forget(None)
            raise
        finally:
            with self._hearing:
                unmatched, self._unmatched = self._unmatched or {}, None
        self.missed = any(map(self._touches, unmatched))
        self._left = now.left
        return now.look, now.devices


class _OneLook(Generic[D]):
    """One look of a survey: objects, parts, groups, devices."""

    def __init__(
        self, selection: Selection, maker: Maker[D], memory: Memory[D], held: Callable[[], Iterable[str]]
    ) -> None:
        self._selection, self._memory, self._held = selection, memory, held
        self.look = look = Look(selection.roots)
        self._grouping, self._make = Grouping(look, selection, memory.names), maker(look)
        self._asked: dict[str, tuple[Asked, ...]] = {}
        """The notes of each object that this look has read, keyed by path, until its devices are made."""
        self.left: dict[Object, Unoffered] = {}
        self.devices: dict[str, D] = {}

    def find(self) -> bool:
        """Takes the look. False if a device has to be made of an object that an earlier look read."""
        meant = self._meant()
        memory, group = self._memory, self._selection.group
        parts: list[Part] = []
        for thing, kinds in meant.values():
            seen = memory.seen.get(thing.path)
            if seen is None or seen.kinds != kinds:
                notes: set[Asked] = set()
                with self.look.trace.into(notes):
                    made = tuple(self._grouping.parts(thing, kinds))
                self._asked[thing.path] = tuple(notes) if made else ()  # a tuple is a fifth of a set's size
                trace = places(notes)
                memory.care(thing.path, trace)
                left = self._grouping.left.get(thing)
                seen = memory.see(thing.path, Sighting(kinds, made, left, () if made else trace))
            if seen.left is not None:
                self.left[thing] = seen.left
            parts += seen.parts

        # memory keeps equal parts identical, so comparing by identity suffices, and is fast for thousands
        if len(parts) != len(memory.grouped.parts) or not all(map(operator.is_, parts, memory.grouped.parts)):
            if group is not None and group.by is None:
                memory.names.held = self._held()
            self._grouping.left = {}
            memory.grouped = Grouped.of(parts, self._grouping.wholes(parts), self._grouping.left)
        self.left |= memory.grouped.left
        known = self._list()
        memory.settle(meant.keys(), known or frozenset(), self.look.trace.directories)
        return known is not None

    def _meant(self) -> Mapping[str, tuple[Object, tuple[int, ...]]]:
        """All objects, keyed by path, each with the alternatives for its subsystem."""
        meant: dict[str, tuple[Object, tuple[int, ...]]] = {}
        same: dict[tuple[int, ...], tuple[int, ...]] = {}  # a thousand objects have the same alternatives
        for kind, match in enumerate(self._selection.match):
            with self.look.trace.into(set()):  # a trace without use: each look lists the objects again
                things = list(self.look.objects(match.subsystem, self._memory.known))
            if not meant:  # the usual case: thousands of objects, and one alternative
                alone = (kind,)
                meant = {thing.path: (thing, alone) for thing in things}
                continue
            for thing in things:
                _, kinds = meant.get(thing.path, (thing, ()))
                more = (*kinds, kind)
                meant[thing.path] = thing, same.setdefault(more, more)
        return meant

    def _list(self) -> Set[str] | None:
        """Lists the devices, and returns the ids of those to keep; None if objects have to be read again."""
        grouped, kept_before, known = self._memory.grouped, self._memory.kept, set[str]()
        for whole in grouped.wholes:
            kept = kept_before.get(whole.id)
            if whole.id in grouped.claimed:
                claimants = grouped.claimed[whole.id]
                paths = " and ".join(sorted(f"/sys/{one.parts[0].found.thing.path}" for one in claimants))
                why = f"the id is ambiguous: {paths} have it; set `id`, or match fewer"
                try:
                    self._list_absent(whole.id, why)
                except ValueError as error:
                    self._leave(whole, error)
                continue
            if kept is None or (kept.whole is not whole and kept.whole != whole):  # identity first, because it is fast
                if not self._asked.keys() >= set(whole.paths):
                    return None  # an object's attributes were read in an earlier look, and are gone
                kept = self._kept(whole)
            if kept is not None:
                known.add(whole.id)
                self.devices[whole.id] = kept.device
        for id_ in self._selection.expected:
            self._list_absent(id_, "it isn't there: nothing that match describes has this id")
        return known

    def _kept(self, whole: Whole) -> Kept[D] | None:
        """Makes a device and keeps it; None if it can't be offered."""
        notes = set[Asked]().union(*(self._asked[path] for path in whole.paths))
        try:
            with self.look.trace.into(notes):
                device = self._make(FoundDevice(self.look, self._selection, whole))
        except ValueError as error:
            self._leave(whole, error)
            return None
        finally:  # frees attributes as soon as their devices are made, which bounds the memory of a look
            done = set(whole.paths) - self._memory.grouped.shared
            self.look.forget(done)
            for path in done:
                del self._asked[path]
        trace = places(notes)
        for path in whole.paths:
            self._memory.care(path, trace)
        return self._memory.keep(Kept(whole, device, trace))

    def _leave(self, whole: Whole, error: ValueError) -> None:
        """Notes that the device's id isn't valid."""
        why = Unoffered("id", f"that {error}", "one that can be offered")
        self.left |= {part.found.thing: why for part in whole.parts}

    def _list_absent(self, id_: str, why: str) -> None:
        """Lists an Unhealthy device: absent, or with an id that several devices claim. It isn't kept."""
        if id_ not in self.devices:
            self.devices[id_] = self._make(FoundDevice(self.look, self._selection, Whole(id_, (), why)))

"""Which devices there are by what they are: the objects of sysfs that the configuration's match takes, in one look."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from dpgateway import Candidate, Device, DriverError, Health
from dpgateway.sysfs import (
    Asked,
    Changes,
    Interest,
    Look,
    Matched,
    Mismatch,
    Object,
    Uevent,
    numa_of,
    places,
    tried,
    value_matches,
)
from dpgateway_chardev.given import Given, differing
from dpgateway_chardev.giving import Giver, NothingToGive
from dpgateway_chardev.grouping import Grouping, Left, Part, Whole, parts_of
from dpgateway_chardev.health import wrong_attribute
from dpgateway_chardev.memory import Grouped, Kept, MatchedDevice, Memory, Seen
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.probing import Check


@dataclass(frozen=True, slots=True)
class Concern:
    """Which changes in sysfs may have changed the devices."""

    subsystems: tuple[str, ...]
    places: frozenset[str]
    """The paths of all objects of these subsystems, also of those that no match takes yet; and what else in /sys the
    answers depended on: the physical function of one whose attributes are asked through ``physfn``.
    """
    above: frozenset[str]
    """What these are in."""

    def has(self, event: Uevent) -> bool:
        """Whether it is about an object of these subsystems, about what a place is in, or about what is in it."""
        if any(value_matches(event.subsystem, subsystem) for subsystem in self.subsystems):
            return True
        return event.path in self.above or any(one.path in self.places for one in Object(event.path).line)


class MatchSurvey:
    """One look at everything: ``devices`` and ``notices`` say what was found, ``directories`` what to watch."""

    def __init__(self, options: CharDeviceOptions, memory: Memory | None = None) -> None:
        """``memory``: what is known from earlier looks."""
        self._options = options
        self._memory = memory or Memory()
        self._look = Look(options.roots)
        self._giver = Giver(options, self._look)
        self._grouping = Grouping(self._look, options.match, options.group, options.id, self._memory.names)
        self._asked: dict[str, tuple[Asked, ...]] = {}
        """On what depended what was found out about objects, by their paths. Only of those that were read."""
        self.devices: dict[str, MatchedDevice] = {}
        self.checks: dict[str, Sequence[Check]] = {}
        """What has to be asked of devices, by their ids."""

    @property
    def notices(self) -> Mapping[str, None]:
        return self._grouping.notices

    @property
    def directories(self) -> Mapping[str, Interest]:
        return self._memory.directories

    @property
    def concern(self) -> Concern:
        return Concern(tuple(match.subsystem for match in self._options.match), *self._memory.concern)

    def find(self, changes: Changes | None = None) -> None:
        """Finds all there is. What ``changes`` can't have touched is as it was; None: everything is looked at. Raises
        DriverError.
        """
        try:
            self._memory.forget(changes)
            if not self._find():
                self._memory.forget(None)
                self.devices, self.checks, self._grouping.left = {}, {}, {}
                self._find()
        except BaseException as error:
            self._memory.forget(None)
            if isinstance(error, OSError):
                raise DriverError(f"{error.filename} can't be listed: {error.strerror}") from error
            raise

    def _find(self) -> bool:
        """Whether it can be sure, with what is known from earlier looks."""
        meant = self._meant()
        parts = [part for thing, kinds in meant.values() for part in self._seen(thing, kinds).parts]
        self._group(parts)
        known = self._list()
        self._memory.settle(meant.keys(), known or frozenset())
        self._memory.watch(self._giver.dev.directories)
        self._memory.watch(self._giver.files.directories)
        if self._look.asked_udev:  # udev says nothing to the kernel when it is done with a device
            self._memory.watch({f"{self._options.udev}/data": Interest(globs={"*"})})
        return known is not None

    def _meant(self) -> Mapping[str, tuple[Object, tuple[int, ...]]]:
        """All objects by their paths, each with the alternatives that are about its subsystem."""
        meant: dict[str, tuple[Object, tuple[int, ...]]] = {}
        same: dict[tuple[int, ...], tuple[int, ...]] = {}  # a thousand objects have the same alternatives
        for kind, match in enumerate(self._options.match):
            with self._look.trace.into(set()):  # nobody asks for this trace: each look lists them again
                things = list(self._look.objects(match.subsystem, self._memory.known))
            if not meant:  # the usual case: thousands of objects, and one alternative
                alone = (kind,)
                meant = {thing.path: (thing, alone) for thing in things}
                continue
            for thing in things:
                _, kinds = meant.get(thing.path, (thing, ()))
                more = (*kinds, kind)
                meant[thing.path] = thing, same.setdefault(more, more)
        return meant

    def _seen(self, thing: Object, kinds: tuple[int, ...]) -> Seen:
        seen = self._memory.seen.get(thing.path)
        if seen is None or seen.kinds != kinds:
            asked: set[Asked] = set()
            with self._look.trace.into(asked):
                parts = tuple(self._parts(thing, kinds))
            self._asked[thing.path] = tuple(asked) if parts else ()  # a tuple is a fifth of a set's size
            left = self._grouping.left.get(thing)
            trace = places(asked)
            self._memory.care(thing.path, trace)
            seen = self._memory.see(thing.path, Seen(kinds, parts, left, () if parts else trace))
        if seen.left is not None:
            self._grouping.left[thing] = seen.left
        return seen

    def _parts(self, thing: Object, kinds: Sequence[int]) -> Iterator[Part]:
        """What the first alternative that takes an object makes of it."""
        results = ((kind, self._options.match[kind].look(self._look, thing)) for kind in kinds)
        kind, ancestor = next(((kind, one) for kind, one in results if isinstance(one, Object)), (0, None))
        if ancestor is None:
            return
        one = Matched(thing, ancestor)
        several = None if self._options.parts is None else parts_of(self._look, one, self._options.parts)
        for found in [one] if several is None else [replace(one, part=name) for name in several]:
            if (part := self._grouping.part(kind, found)) is not None:
                yield part

    def _group(self, parts: Sequence[Part]) -> None:
        memory, left = self._memory, self._grouping.left
        if len(parts) != len(memory.grouped.parts) or not all(map(operator.is_, parts, memory.grouped.parts)):
            self._grouping.left = {}
            wholes = self._grouping.wholes(parts)
            memory.grouped = Grouped.of(parts, wholes, self._grouping.left)
        self._grouping.left = left | memory.grouped.left

    def _list(self) -> Set[str] | None:
        """The ids of the devices that can be kept; None, if it can't be sure."""
        known: set[str] = set()
        grouped, remembered = self._memory.grouped, self._memory.kept
        for whole in grouped.wholes:
            id_ = whole.id
            if id_ in grouped.claimed:
                self.devices[id_] = _nobody(id_, grouped.claimed[id_])
                continue
            kept = remembered.get(id_)
            if kept is not None and kept.whole is not whole and kept.whole.same(whole):
                remembered[id_] = kept = replace(kept, whole=whole)  # the next look sees that at once
            if kept is None or kept.whole is not whole:
                if not self._asked.keys() >= set(whole.paths):
                    return None  # what was read of its objects isn't known any more
                kept = self._device_of(whole)
                self._forget(set(whole.paths) - grouped.shared)
            if kept is not None:
                known.add(id_)
                self.devices[id_] = kept.device
                self.checks[id_] = kept.checks
        for id_ in self._options.expected:
            absent = Health.unhealthy("it isn't there: nothing that match describes has this id")
            self.devices.setdefault(id_, MatchedDevice(id_, absent))
        return known

    def _forget(self, paths: Collection[str]) -> None:
        """What was read of objects whose devices are made takes the place that the next devices need."""
        self._look.forget(paths)
        for path in paths:
            del self._asked[path]

    def _device_of(self, whole: Whole) -> Kept | None:
        """None, if it can't be offered."""
        asked = set[Asked]().union(*(self._asked[path] for path in whole.paths))
        try:
            with self._look.trace.into(asked):
                device, checks = self._device(whole)
        except ValueError as error:
            why = Left("id", f"that {error}", "one that can be offered")
            self._grouping.left |= {part.found.thing: why for part in whole.parts}
            return None
        trace = places(asked)
        for path in whole.paths:
            self._memory.care(path, trace)
        return self._memory.keep(Kept(whole, device, checks, trace))

    def explain(self, about: str | None) -> Iterator[Candidate]:
        """What was looked at, after ``find``."""
        ids: dict[Object, set[str]] = {}
        for whole in self._memory.grouped.wholes:
            for part in whole.parts:
                ids.setdefault(part.found.thing, set()).add(whole.id)
        for one in tried(self._look, self._options.match, about):
            subsystem, path = self._look.subsystem(one.thing), f"/sys/{one.thing.path}"
            name = f"{subsystem} {one.thing.kernel}" if isinstance(subsystem, str) else one.thing.kernel
            why = self._grouping.left.get(one.thing)
            if isinstance(one.result, Mismatch):
                key = "match" if len(self._options.match) == 1 else f"match[{one.number}]"
                why = Left(f"{key}.{one.result.test}", one.result.found, one.result.expected)
            elif why is None and one.thing not in ids:
                why = Left("parts", "none", "at least one")
            if why is not None:
                yield Candidate(name, path, test=why.test, found=why.found, expected=why.expected)
            else:
                yield from (Candidate(name, path, device=id_) for id_ in sorted(ids[one.thing]))

    def give(self, device: Device) -> Given:
        """What a device gives. Raises NothingToGive, unless it is what it was when the kubelet chose it."""
        if not isinstance(device, MatchedDevice) or device.given is None:
            raise NothingToGive("it was never listed with what it gives")
        parts = [self._checked(part) for part in device.parts]
        now, _ = self._device(Whole(device.id, tuple(parts)))
        if now.given is None:
            raise NothingToGive(now.health.reason)
        if now.given != device.given:
            raise NothingToGive(differing(device.given, now.given))
        return now.given

    def _checked(self, part: Part) -> Part:
        """The same part, if it still is what match describes, still has its names, and still belongs where it did."""
        thing = f"/sys/{part.found.thing.path}"
        if not self._look.exists(part.found.thing):
            raise NothingToGive(f"{thing} is gone")
        result = self._options.match[part.kind].look(self._look, part.found.thing)
        if isinstance(result, Mismatch):
            raise NothingToGive(f"{thing} isn't what match describes any more: {result}")
        found = replace(part.found, ancestor=result)
        if self._options.parts is not None and found.part not in parts_of(self._look, found, self._options.parts):
            raise NothingToGive(f"{thing} has no part {found.part} any more")
        now = self._grouping.part(part.kind, found)
        if now is None or not now.same(part):
            raise NothingToGive(f"{thing} is {_described(now)} now, it was {_described(part)}")
        return now

    def _device(self, whole: Whole) -> tuple[MatchedDevice, Sequence[Check]]:
        """Healthy with all that it gives, or Unhealthy, because it lacks something; and what has to be asked of it."""
        found = [part.found for part in whole.parts]
        checks: Sequence[Check] = ()
        given, health = None, Health.healthy()
        try:
            given = self._giver.give(whole.id, whole.parts)
            checks = self._giver.checks(whole, given)
        except NothingToGive as error:
            health = Health.unhealthy(str(error))
        if whole.missing is not None:
            given, health = None, Health.unhealthy(whole.missing)
        elif given is not None and (wrong := wrong_attribute(self._options, self._look, found[0].thing)):
            given, health = None, Health.unhealthy(wrong)
        device = MatchedDevice(
            whole.id,
            health,
            self._numa(found),
            attributes=self._giver.attributes(found, given),
            hardware=None if given is None else self._giver.hardware(found, given),
            parts=whole.parts,
            given=given,
        )
        return device, checks

    def _numa(self, found: Sequence[Matched]) -> tuple[int, ...]:
        """What ``numa`` says; where it has no text for an object, and without it, the nearest ancestor's."""
        if self._options.numa == "":
            return ()
        return tuple([node for one in found for node in self._giver.numa(one) or numa_of(self._look, one.thing)])


def _nobody(id_: str, claimants: Sequence[Whole]) -> MatchedDevice:
    places = " and ".join(sorted(f"/sys/{one.parts[0].found.thing.path}" for one in claimants))
    why = f"it isn't known which one it is: {places} have the same id; say `id`, or match fewer"
    return MatchedDevice(id_, Health.unhealthy(why))


def _described(part: Part | None) -> str:
    if part is None:
        return "without a name"
    return " or ".join(part.names) + (f" of {part.group}" if part.group else "")

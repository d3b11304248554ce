"""Which devices there are by what they are: the objects of sysfs that the configuration's match takes, in one look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpgateway import Candidate, Device, DriverError, Health
from dpgateway.sysfs import Interest, Look, Matched, Mismatch, Object, Uevent, find, numa_of, tried, value_matches
from dpgateway_chardev.given import Given
from dpgateway_chardev.giving import Giver, NothingToGive
from dpgateway_chardev.grouping import Grouping, Left, Part, Whole, parts_of
from dpgateway_chardev.health import wrong_attribute
from dpgateway_chardev.naming import Names
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.probing import Check


@dataclass(frozen=True, slots=True)
class MatchedDevice(Device):
    """A device, the objects that it is made of, and what a container gets with it."""

    parts: tuple[Part, ...] = ()
    given: Given | None = None


@dataclass(frozen=True, slots=True)
class Concern:
    """Which changes in sysfs may have changed the devices. All that a driver keeps of a look."""

    subsystems: tuple[str, ...]
    places: frozenset[str]
    """The paths of all parts of devices."""

    def has(self, event: Uevent) -> bool:
        """Whether it is about an object of these subsystems, about what a part of a device is in, or what is in it."""
        if any(value_matches(event.subsystem, subsystem) for subsystem in self.subsystems):
            return True
        inside = any(one.path in self.places for one in Object(event.path).line)
        return inside or any(place.startswith(f"{event.path}/") for place in self.places)


class MatchSurvey:
    """One look at everything: ``devices`` and ``notices`` say what was found, ``directories`` what to watch."""

    def __init__(self, options: CharDeviceOptions, names: Names | None = None) -> None:
        """``names``: those of earlier looks, which devices keep."""
        self._options = options
        self._look = Look(options.roots)
        self._giver = Giver(options, self._look)
        self._grouping = Grouping(self._look, options.match, options.group, options.id, names or Names())
        self.devices: dict[str, MatchedDevice] = {}
        self.checks: dict[str, Sequence[Check]] = {}
        """What has to be asked of devices, by their ids."""
        self._ids: dict[Object, set[str]] = {}
        """The ids of the devices that objects are, or are parts of."""

    @property
    def notices(self) -> Mapping[str, None]:
        return self._grouping.notices

    @property
    def directories(self) -> Mapping[str, Interest]:
        directories = {**self._giver.dev.directories, **self._giver.files.directories}
        if self._look.asked_udev:  # udev says nothing to the kernel when it is done with a device
            directories[f"{self._options.udev}/data"] = Interest(globs={"*"})
        return directories

    @property
    def concern(self) -> Concern:
        places = frozenset(thing.path for thing in self._ids)
        return Concern(tuple(match.subsystem for match in self._options.match), places)

    def find(self) -> None:
        """Finds all there is. Raises DriverError."""
        try:
            wholes = list(self._grouping.wholes(self._found()))
        except OSError as error:
            raise DriverError(f"{error.filename} can't be listed: {error.strerror}") from error
        ids: dict[str, list[Whole]] = {}
        for one in wholes:
            ids.setdefault(one.id, []).append(one)
            for part in one.parts:
                self._ids.setdefault(part.found.thing, set()).add(one.id)
        for id_, claimants in sorted(ids.items()):
            try:
                self.devices[id_] = self._device(claimants[0]) if len(claimants) == 1 else _nobody(id_, claimants)
            except ValueError as error:
                why = Left("id", f"that {error}", "one that can be offered")
                self._grouping.left |= {part.found.thing: why for one in claimants for part in one.parts}

        for id_ in self._options.expected:
            absent = Health.unhealthy("it isn't there: nothing that match describes has this id")
            self.devices.setdefault(id_, MatchedDevice(id_, absent))

    def explain(self, about: str | None) -> Iterator[Candidate]:
        """What was looked at, after ``find``."""
        for one in tried(self._look, self._options.match, about):
            name, path = f"{self._look.subsystem(one.thing)} {one.thing.kernel}", f"/sys/{one.thing.path}"
            why = self._grouping.left.get(one.thing)
            if isinstance(one.result, Mismatch):
                key = "match" if len(self._options.match) == 1 else f"match[{one.number}]"
                why = Left(f"{key}.{one.result.test}", one.result.found, one.result.expected)
            elif why is None and one.thing not in self._ids:
                why = Left("parts", "none", "at least one")
            if why is not None:
                yield Candidate(name, path, test=why.test, found=why.found, expected=why.expected)
            else:
                yield from (Candidate(name, path, device=id_) for id_ in sorted(self._ids[one.thing]))

    def _found(self) -> Iterator[tuple[int, Matched]]:
        for kind, one in find(self._look, self._options.match):
            if self._options.parts is None:
                yield kind, one
            else:
                yield from ((kind, replace(one, part=part)) for part in parts_of(self._look, one, self._options.parts))

    def give(self, device: Device) -> Given:
        """What a device gives. Raises NothingToGive, unless it is what it was when the kubelet chose it."""
        if not isinstance(device, MatchedDevice) or device.given is None:
            raise NothingToGive("it was never listed with what it gives")
        parts = [self._checked(part) for part in device.parts]
        now = self._device(Whole(device.id, tuple(parts)))
        if now.given is None:
            raise NothingToGive(now.health.reason)
        if now.given != device.given:
            raise NothingToGive(f"it gives {now.given} now, it was listed with {device.given}")
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
        if now is None or (now.names, now.group, now.found) != (part.names, part.group, part.found):
            raise NothingToGive(f"{thing} is {_described(now)} now, it was {_described(part)}")
        return now

    def _device(self, whole: Whole) -> MatchedDevice:
        """Healthy with all that it gives, or Unhealthy, because it lacks something."""
        found = [part.found for part in whole.parts]
        given, health = None, Health.healthy()
        try:
            given = self._giver.give(whole.id, whole.parts)
            self.checks[whole.id] = self._giver.checks(whole, given)
        except NothingToGive as error:
            health = Health.unhealthy(str(error))
        if whole.missing is not None:
            given, health = None, Health.unhealthy(whole.missing)
        elif given is not None and (wrong := wrong_attribute(self._options, self._look, found[0].thing)):
            given, health = None, Health.unhealthy(wrong)
        return MatchedDevice(
            whole.id,
            health,
            self._numa(found),
            attributes=self._giver.attributes(found, given),
            hardware=None if given is None else self._giver.hardware(found, given),
            parts=whole.parts,
            given=given,
        )

    def _numa(self, found: Sequence[Matched]) -> tuple[int, ...]:
        """What ``numa`` says; where it has no text for an object, and without it, the nearest ancestor's."""
        if self._options.numa == "":
            return ()
        return tuple(node for one in found for node in self._giver.numa(one) or numa_of(self._look, one.thing))


def _nobody(id_: str, claimants: Sequence[Whole]) -> MatchedDevice:
    places = " and ".join(sorted(f"/sys/{one.parts[0].found.thing.path}" for one in claimants))
    why = f"it isn't known which one it is: {places} have the same id; say `id`, or match fewer"
    return MatchedDevice(id_, Health.unhealthy(why))


def _described(part: Part | None) -> str:
    if part is None:
        return "without a name"
    return " or ".join(part.names) + (f" of {part.group}" if part.group else "")

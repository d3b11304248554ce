"""Which devices there are by what they are: the objects of sysfs that the configuration's match takes, in one look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpgateway import Device, DriverError, Health, Mount
from dpgateway.sysfs import (
    HOST_DEV,
    LASTING,
    DevTree,
    Interest,
    Look,
    Matched,
    Mismatch,
    NoNode,
    NoValue,
    Object,
    Template,
    Unfilled,
    identity,
    numa_of,
)
from dpgateway_chardev.given import Given, GivenNode, MountOption, NodeOption
from dpgateway_chardev.options import CharDeviceOptions


class NothingToGive(Exception):
    """A device lacks something that containers should get with it. The text says what."""


@dataclass(frozen=True, slots=True)
class MatchedDevice(Device):
    """A device, the object that it is, and what a container gets with it."""

    found: Matched | None = None
    given: Given | None = None


class MatchSurvey:
    """One look at everything: ``devices`` and ``notices`` say what was found, ``directories`` what to watch."""

    def __init__(self, options: CharDeviceOptions) -> None:
        self._options = options
        self._look = Look(options.roots)
        self._dev = DevTree(options.dev)
        self.devices: dict[str, MatchedDevice] = {}
        self.notices: dict[str, None] = {}
        self._template = None if options.id is None else Template.parse(options.id)

    @property
    def directories(self) -> Mapping[str, Interest]:
        return self._dev.directories

    def find(self) -> None:
        """Finds all there is. Raises DriverError."""
        try:
            found = list(self._found())
        except OSError as error:
            raise DriverError(f"{error.filename} can't be listed: {error.strerror}") from error
        names = {one: self._names(one) for one in found}
        counted = Counter(name for of_one in names.values() for name in of_one)
        ids: dict[str, list[Matched]] = {}
        for one, of_one in names.items():
            if of_one:
                best = next((name for name in of_one if counted[name] == 1), of_one[-1])
                ids.setdefault(best, []).append(one)
        for id_, claimants in sorted(ids.items()):
            self._add(id_, claimants)

    def give(self, device: Device) -> Given:
        """What a device gives. Raises NothingToGive, unless it is what it was when the kubelet chose it."""
        if not isinstance(device, MatchedDevice) or device.found is None:
            raise NothingToGive("it was never listed with what it gives")
        self._check(device.id, device.found)
        now = self._device(device.id, device.found)
        if now.given is None:
            raise NothingToGive(now.health.reason)
        if now.given != device.given:
            raise NothingToGive(f"it gives {now.given} now, it was listed with {device.given}")
        return now.given

    def _check(self, id_: str, found: Matched) -> None:
        """It still is what match describes, and still has this id."""
        thing = f"/sys/{found.thing.path}"
        if not self._look.exists(found.thing):
            raise NothingToGive(f"{thing} is gone")
        results = [match.look(self._look, found.thing) for match in self._options.match]
        if found.ancestor not in results:
            why = next((f"{one.test}: {one.found}" for one in results if isinstance(one, Mismatch)), "another ancestor")
            raise NothingToGive(f"{thing} isn't what match describes any more: {why}")
        if id_ not in (names := self._names(found)):
            raise NothingToGive(f"{thing} is {' or '.join(names)} now")

    def _found(self) -> Iterator[Matched]:
        """Each object once, for the first match that takes it."""
        seen: set[Object] = set()
        for match in self._options.match:
            for thing in self._look.objects(match.subsystem):
                if thing not in seen and isinstance(ancestor := match.look(self._look, thing), Object):
                    seen.add(thing)
                    yield Matched(thing, ancestor)

    def _names(self, found: Matched) -> Sequence[str]:
        """What could be a device's id, the best one first."""
        if self._template is None:
            return identity(self._look, found.thing)
        filled = self._template.fill(self._look, found)
        if isinstance(filled, Unfilled):
            self.notices[f"/sys/{found.thing.path} can't be offered without an id: {filled}"] = None
            return ()
        return (filled,)

    def _add(self, id_: str, claimants: Sequence[Matched]) -> None:
        try:
            if len(claimants) == 1:
                self.devices[id_] = self._device(id_, claimants[0])
            else:
                places = " and ".join(f"/sys/{one.thing.path}" for one in sorted(claimants, key=lambda one: one.thing))
                why = f"it isn't known which one it is: {places} have the same id; say `id`, or match fewer"
                self.devices[id_] = MatchedDevice(id_, Health.unhealthy(why))
        except ValueError as error:
            self.notices[str(error)] = None

    def _device(self, id_: str, found: Matched) -> MatchedDevice:
        """Healthy with all that it gives, or Unhealthy, because it lacks something."""
        try:
            given, health = self._given(id_, found), Health.healthy()
        except NothingToGive as error:
            given, health = None, Health.unhealthy(str(error))
        return MatchedDevice(
            id_,
            health,
            numa_of(self._look, found.thing),
            attributes=self._attributes(found, given),
            hardware=self._hardware(found, given),
            found=found,
            given=given,
        )

    def _attributes(self, found: Matched, given: Given | None) -> dict[str, str]:
        attributes = {"object": f"/sys/{found.thing.path}"}
        if given is not None and given.nodes:
            attributes["node"] = " ".join(f"{HOST_DEV}/{one.node.real}" for one in given.nodes)
        for match in self._options.match:
            for thing, paths in ((found.thing, match.attr), (found.ancestor, match.attrs)):
                values = {path: self._look.value(thing, path) for path in paths}
                attributes |= {path: value for path, value in values.items() if isinstance(value, str)}
        return attributes

    def _hardware(self, found: Matched, given: Given | None) -> tuple[str, ...] | None:
        """The object itself if it lies on a bus, and its nodes; None if these aren't known."""
        if given is None:
            return None
        subsystem = self._look.subsystem(found.thing)
        on_bus = not isinstance(subsystem, NoValue) and (subsystem in LASTING or not given.nodes)
        own = [f"{subsystem} {found.thing.kernel}"] if on_bus else []
        return (*own, *(str(one.node) for one in given.nodes)) or None

    def _given(self, id_: str, found: Matched) -> Given:
        options, others = self._options, {"id": id_}
        return Given(
            tuple(self._nodes(found, others)),
            tuple(self._mount(one, found, others) for one in options.mounts),
            tuple((name, self._text(text, found, others)) for name, text in options.env.items()),
            tuple((name, self._text(text, found, others)) for name, text in options.annotations.items()),
        )

    def _mount(self, option: MountOption, found: Matched, others: Mapping[str, str]) -> Mount:
        host_path, container_path = option.host_path, option.container_path
        return Mount(self._path(host_path, found, others), self._path(container_path, found, others), option.read_only)

    def _nodes(self, found: Matched, others: Mapping[str, str]) -> Iterator[GivenNode]:
        for option in self._options.nodes:
            try:
                yield self._node(option, found, others)
            except NothingToGive:
                if not option.optional:
                    raise

    def _node(self, option: NodeOption, found: Matched, others: Mapping[str, str]) -> GivenNode:
        path = self._path(option.host_path, found, others)
        node = self._dev.look(path.removeprefix(f"{HOST_DEV}/"), self._options.type)
        if isinstance(node, NoNode):
            raise NothingToGive(node.reason)
        if option.host_path == "{devnode}":
            self._check_number(found, path, f"{node.major}:{node.minor}")
        inside = option.container_path or self._options.container_path
        name = {"name": path.rpartition("/")[2]}
        container_path = path if inside is None else self._path(inside, found, {**others, **name})
        return GivenNode(path, container_path, option.permissions or self._options.permissions, node)

    def _check_number(self, found: Matched, path: str, number: str) -> None:
        """The node that is there has to be the object's: an old file may have its name."""
        said = self._look.uevent(found.thing)
        expected = f"{said.get('MAJOR')}:{said.get('MINOR')}"
        if "MAJOR" in said and expected != number:
            raise NothingToGive(f"expected {path} to be {expected}, as sysfs says, found {number}")

    def _text(self, template: str, found: Matched, others: Mapping[str, str]) -> str:
        filled = Template.parse(template, others).fill(self._look, found, others)
        if isinstance(filled, Unfilled):
            raise NothingToGive(f"{template} can't be filled: {filled}")
        return filled

    def _path(self, template: str, found: Matched, others: Mapping[str, str]) -> str:
        """A filled template that is a path: what a device says of itself may not lead elsewhere."""
        path = self._text(template, found, others)
        if not path.startswith("/") or any(part in {"", ".", ".."} for part in path[1:].split("/")) or "\0" in path:
            raise NothingToGive(f"expected {template} to be a path without '.', '..' and '//', found {path!r}")
        return path

"""What a matched object gives a container: the configuration's templates, filled in one look at sysfs and /dev."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from dpgateway import Mount
from dpgateway.sysfs import HOST_DEV, LASTING, DevTree, Look, Matched, NoNode, NoValue, Template, Unfilled
from dpgateway_chardev.given import Given, GivenNode, MountOption, NodeOption
from dpgateway_chardev.options import CharDeviceOptions


class NothingToGive(Exception):
    """A device lacks something that containers should get with it. The text says what."""


class Giver:
    """Fills templates for one object after the other."""

    def __init__(self, options: CharDeviceOptions, look: Look) -> None:
        self._options, self._look = options, look
        self.dev = DevTree(options.dev)

    def give(self, id_: str, found: Sequence[Matched]) -> Given:
        """What all objects of a device give together, each thing once. Raises NothingToGive."""
        given = [self._of_one(one, {"id": id_}) for one in found]
        return Given(
            tuple(dict.fromkeys(node for one in given for node in one.nodes)),
            tuple(dict.fromkeys(mount for one in given for mount in one.mounts)),
            tuple(dict.fromkeys(pair for one in given for pair in one.env)),
            tuple(dict.fromkeys(pair for one in given for pair in one.annotations)),
        )

    def hardware(self, found: Sequence[Matched], given: Given) -> tuple[str, ...] | None:
        """The objects that lie on a bus, and the nodes that are theirs; else the objects, whatever they are."""
        nodes = [str(one.node) for one in given.nodes if not one.constant]
        subsystems = [(self._look.subsystem(one.thing), one.thing.kernel) for one in found]
        own = [f"{name} {kernel}" for name, kernel in subsystems if name in LASTING or not nodes]
        return (*own, *nodes)

    def attributes(self, found: Sequence[Matched], given: Given | None) -> dict[str, str]:
        """What was learned of the first object by its tests, and where everything is."""
        first = found[0]
        attributes = {"object": " ".join(f"/sys/{one.thing.path}" for one in found)}
        if given is not None and given.nodes:
            attributes["node"] = " ".join(f"{HOST_DEV}/{one.node.real}" for one in given.nodes)
        if not isinstance(driver := self._look.value(first.thing, "driver"), NoValue):
            attributes["driver"] = driver
        for match in self._options.match:
            for thing, paths in ((first.ancestor, match.attrs), (first.thing, match.attr)):
                values = {path: self._look.value(thing, path) for path in paths}
                attributes |= {path: value for path, value in values.items() if isinstance(value, str)}
        return attributes

    def _of_one(self, found: Matched, others: Mapping[str, str]) -> Given:
        options = self._options
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
                paths = _parsed(option.host_path).all(self._look, found)
                if isinstance(paths, Unfilled):
                    raise NothingToGive(f"{option.host_path} can't be filled: {paths}")  # noqa: TRY301
                for path in paths:
                    yield self._node(option, _checked(option.host_path, path), found, others)
            except NothingToGive:
                if not option.optional:
                    raise

    def _node(self, option: NodeOption, path: str, found: Matched, others: Mapping[str, str]) -> GivenNode:
        node = self.dev.look(path.removeprefix(f"{HOST_DEV}/"), self._options.type)
        if isinstance(node, NoNode):
            raise NothingToGive(node.reason)
        if option.host_path == "{devnode}":
            self._check_number(found, path, f"{node.major}:{node.minor}")
        inside = option.container_path or self._options.container_path
        name = {"name": path.rpartition("/")[2]}
        container_path = path if inside is None else self._path(inside, found, {**others, **name})
        constant = "{" not in option.host_path
        return GivenNode(path, container_path, option.permissions or self._options.permissions, node, constant)

    def _check_number(self, found: Matched, path: str, number: str) -> None:
        """The node that is there has to be the object's: an old file may have its name."""
        expected = ":".join(str(self._look.env(found.thing, key)) for key in ("MAJOR", "MINOR"))
        if isinstance(self._look.env(found.thing, "MAJOR"), str) and expected != number:
            raise NothingToGive(f"expected {path} to be {expected}, as sysfs says, found {number}")

    def _text(self, template: str, found: Matched, others: Mapping[str, str]) -> str:
        filled = _parsed(template, tuple(others)).fill(self._look, found, others)
        if isinstance(filled, Unfilled):
            raise NothingToGive(f"{template} can't be filled: {filled}")
        return filled

    def _path(self, template: str, found: Matched, others: Mapping[str, str]) -> str:
        return _checked(template, self._text(template, found, others))


@lru_cache(maxsize=1024)
def _parsed(text: str, others: tuple[str, ...] = ()) -> Template:
    """Each template once, and not once for each object."""
    return Template.parse(text, dict.fromkeys(others, ""))


def _checked(template: str, path: str) -> str:
    """A filled template that is a path: what a device says of itself may not lead elsewhere."""
    if not path.startswith("/") or any(part in {"", ".", ".."} for part in path[1:].split("/")) or "\0" in path:
        raise NothingToGive(f"expected {template} to be a path without '.', '..' and '//', found {path!r}")
    return path

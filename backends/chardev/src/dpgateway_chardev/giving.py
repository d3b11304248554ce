"""From a found device to its contribution: the configuration's templates, filled in one look at sysfs and /dev.

Theory. A device is healthy only if everything that it should give is there: every missing thing raises NothingToGive
with the reason, and ``device`` makes an Unhealthy device of it. An alternative path or an optional node may catch it.
WrongNode passes through all of these: a path to another device's node must never be given, or silently skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpgateway import Device, DriverError, Health, Mount
from dpgateway.sysfs import (
    HOST_DEV,
    DevTree,
    FoundDevice,
    Look,
    Matched,
    NoNode,
    NoValue,
    Part,
    Unfilled,
    template,
)
from dpgateway_chardev.given import Contribution, GivenAccess, GivenNode, together
from dpgateway_chardev.health import checks
from dpgateway_chardev.hostfiles import HostFiles
from dpgateway_chardev.jsons import JsonText, NoText, dumped, filled, merged
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.owners import Owners
from dpgateway_chardev.probing import Check
from dpgateway_chardev.settings import NodeOption

_VFIO = f"{HOST_DEV}/vfio/"
_OF_ITS_NODE = frozenset({"devnode", "symlink"})
"""Fields about an object's own node."""


class NothingToGive(NoText):
    """A device lacks something that containers should get with it, named by the text."""


class NoNodeOfItsOwn(NothingToGive):
    """An object that the kernel gives no node, such as ``input7`` of ``event7``, where its node is wanted."""


class WrongNode(NothingToGive):
    """A path leads to another object's node. Neither ``optional`` nor an alternative path excuses that."""


@dataclass(frozen=True, slots=True)
class MatchedDevice(Device):
    """A device with its parts and its contribution to a container, which is None while it is Unhealthy."""

    parts: tuple[Part, ...] = ()
    given: Contribution | None = None
    checks: tuple[Check, ...] = ()
    """The device's health probes."""


class Giver:
    """Makes devices in one look."""

    def __init__(self, options: CharDeviceOptions, look: Look) -> None:
        self._options, self._look = options, look
        self._dev = DevTree(options.dev, look.trace)
        self._files = HostFiles(options.roots, options.host, look.trace)
        self._owners = Owners(look, options.parts)
        self._constant: dict[GivenNode, GivenNode] = {}
        """Interned nodes that many devices give."""

    def device(self, found: FoundDevice) -> MatchedDevice:
        """The device: Healthy with its whole contribution, or Unhealthy with the reason. Raises ValueError."""
        if not found.parts:
            return MatchedDevice(found.id, Health.unhealthy(found.missing or "it isn't there"))
        given, reason = None, None
        own_checks: tuple[Check, ...] = ()
        try:
            given = self._give(found.id, found.parts)
            first = found.parts[0].found
            others = {"id": found.id, "part": first.part}
            probed = [(one.node, one.permissions) for one in given.nodes if not one.constant]
            own_checks = tuple(checks(self._options, probed, lambda text: self._text(text, first, others)))
        except NothingToGive as error:
            reason = str(error)
        # a missing part explains more than a missing node, and that more than a failed test of health
        if reason := found.missing or reason or found.failed:
            given = None
        nodes = () if given is None else given.nodes
        attributes = found.attributes
        if nodes:
            attributes["node"] = " ".join(f"{HOST_DEV}/{one.node.real}" for one in nodes)
        hardware = None if given is None else found.hardware(*[str(one.node) for one in nodes if not one.constant])
        # a VFIO group has one node for several functions, and the kernel lets one process open it
        own = [one.path for one in nodes if not one.constant]
        joint = bool(own) and all(path.startswith(_VFIO) for path in own)
        health = Health.healthy() if reason is None else Health.unhealthy(reason)
        return MatchedDevice(
            found.id, health, found.numa_nodes, attributes=attributes, hardware=hardware, parts=found.parts,
            given=given, checks=own_checks, joint=joint,
        )  # fmt: skip

    def _give(self, id_: str, parts: Sequence[Part]) -> Contribution:
        """The contributions of a device's objects, merged without duplicates. Raises NothingToGive, also if two things
        have one container path, because then no container could get the device.
        """
        # of several objects those without a node give nothing, unless their alternative of match has nodes of its own:
        # there a node is wanted
        given: list[Contribution] = []
        without: list[NoNodeOfItsOwn] = []
        for one in parts:
            try:
                given.append(self._of_one(one, {"id": id_, "part": one.found.part}))
            except NoNodeOfItsOwn as error:
                if self._options.match[one.kind].nodes is not None:
                    raise
                without.append(error)
        if without and not given:
            raise without[0]

        whole = Contribution(
            tuple(dict.fromkeys(node for own in given for node in own.nodes)),
            tuple(dict.fromkeys(mount for own in given for mount in own.mounts)),
            tuple(dict.fromkeys(pair for own in given for pair in own.env)),
            tuple(dict.fromkeys(pair for own in given for pair in own.annotations)),
            tuple(dict.fromkeys(access for own in given for access in own.access)),
            merged([JsonText(own.info) for own in given], in_order=False) if self._options.device_info else "",
        )
        # no container could get two things at one path; together() has the words for that
        paths = [*(node.container_path for node in whole.nodes), *(mount.container_path for mount in whole.mounts)]
        if len(set(paths)) < len(paths):
            try:
                together([(id_, whole)], "")
            except DriverError as error:
                raise NothingToGive(f"it can't be given: {error}") from error
        return whole

    def _of_one(self, part: Part, others: Mapping[str, str]) -> Contribution:
        options, found = self._options, part.found
        own = options.match[part.kind].nodes
        for one in options.requires:
            if lack := self._files.lacks(self._path(one.host_path, found, others), one.text):
                raise NothingToGive(lack)
        nodes = tuple(self._nodes(options.nodes if own is None else own, found, others))
        mounts: list[Mount] = []
        for mount in options.mounts:
            host_path = self._path(mount.host_path, found, others)
            if self._files.sees(host_path) and (lack := self._files.lacks(host_path, None)):
                raise NothingToGive(f"it can't be given: {lack}, and is to be mounted")
            mounts.append(Mount(host_path, self._path(mount.container_path, found, others), mount.read_only))
        return Contribution(
            nodes,
            tuple(mounts),
            tuple(
                (name, (self._text if isinstance(value, str) else self._json)(value, found, others))
                for name, value in options.env.items()
            ),
            tuple((name, self._text(text, found, others)) for name, text in options.annotations.items()),
            tuple(GivenAccess.of(one, self._path(one.host_path, found, others)) for one in options.access),
            self._json(options.device_info, found, others, in_order=False).text if options.device_info else "",
        )

    def _json(self, value: object, found: Matched, others: Mapping[str, str], *, in_order: bool = True) -> JsonText:
        def fill(text: str) -> str:
            return self._text(text, found, others)

        return JsonText(dumped(filled(value, fill), in_order=in_order))

    def _nodes(self, options: Sequence[NodeOption], found: Matched, others: Mapping[str, str]) -> Iterator[GivenNode]:
        """For each option, the nodes of its first path that leads to any."""
        for option in options:
            lacks: list[NothingToGive] = []
            for path in option.host_path:
                try:
                    nodes = self._at(path, option, found, others)
                except WrongNode:
                    raise
                except NothingToGive as error:
                    lacks.append(error)
                else:
                    yield from nodes
                    break
            else:  # no path leads to any; the first one, which is preferred, gives the reason
                if not option.optional:
                    raise lacks[0]

    def _at(self, text: str, option: NodeOption, found: Matched, others: Mapping[str, str]) -> Sequence[GivenNode]:
        part = {"part": others["part"]}
        parsed = template(text, tuple(part))
        paths = parsed.all(self._look, found, part)
        if isinstance(paths, Unfilled):
            own = paths.field.partition(":")[0] in _OF_ITS_NODE or paths.field == "env:DEVNAME"
            # the kernel gives some objects no node; an unreadable file proves nothing
            said = [self._look.value(found.thing, name) for name in ("dev", "uevent")] if own else []
            unread = any(isinstance(value, NoValue) and not value.absent for value in said)
            has_none = own and not unread and self._look.number(found.thing) is None
            raise (NoNodeOfItsOwn if has_none else NothingToGive)(str(paths))
        nodes: list[GivenNode] = []
        lacks: list[NothingToGive] = []
        for path, thing in zip(paths, self._owners.found(parsed, found, part, len(paths)), strict=True):
            try:
                given = self._node(text, option, _checked(path), found, others)
            except NothingToGive as error:
                lacks.append(error)
                continue
            # the path came from the device's own strings, which prove nothing about the node behind it
            if why := self._owners.wrong(parsed, found, path, given.node, thing):
                raise WrongNode(why)
            nodes.append(given)
        # of several nodes that an optional option finds some may be missing
        if lacks and not (nodes and option.optional):
            raise lacks[0]
        return nodes

    def _node(self, text: str, option: NodeOption, path: str, found: Matched, others: Mapping[str, str]) -> GivenNode:
        node = self._dev.look(path.removeprefix(f"{HOST_DEV}/"), option.type or self._options.type)
        if isinstance(node, NoNode):
            raise NothingToGive(node.reason)
        inside = option.container_path or self._options.container_path
        own = {"name": path.rpartition("/")[2], "major": str(node.major), "minor": str(node.minor)}
        container_path = path if inside is None else self._path(inside, found, {**others, **own})
        # without a field all devices get this node; without {part} all parts of one object do
        constant = "{" not in text or bool(found.part and "{part}" not in text)
        given = GivenNode(path, container_path, option.permissions or self._options.permissions, node, constant)
        return self._constant.setdefault(given, given) if constant else given

    def _text(self, text: str, found: Matched, others: Mapping[str, str]) -> str:
        filled_text = template(text, tuple(others)).fill(self._look, found, others)
        if isinstance(filled_text, Unfilled):
            raise NothingToGive(str(filled_text))
        return filled_text

    def _path(self, text: str, found: Matched, others: Mapping[str, str]) -> str:
        return _checked(self._text(text, found, others))


def _checked(path: str) -> str:
    """A filled template that is a safe path: a device's own strings mustn't lead elsewhere."""
    if not path.startswith("/") or not {"", ".", ".."}.isdisjoint(path[1:].split("/")) or "\0" in path:
        raise NothingToGive(f"expected a path without '.', '..' and '//', found {path!r}")
    return path

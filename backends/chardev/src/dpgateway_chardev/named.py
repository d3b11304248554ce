"""Devices by paths and globs under /dev.

Theory. A device's id is its path, and several paths may lead to one node. Each node is offered once, under its *owner*
path; another literal path to it is listed as Unhealthy, another match of a glob is only logged. A literal path is
always listed, present or not, so that its absence is visible. Every list is a new look at everything. Allocation looks
once more, and refuses a path that leads to another node than the listed one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpgateway import Allocation, Candidate, Context, Device, DeviceNode, DeviceUnavailable, DriverError, Health
from dpgateway.sysfs import (
    ANY_TYPE,
    HOST_DEV,
    Complaint,
    DevNode,
    DevTree,
    NoNode,
    OutsideError,
    Watcher,
    name_matches,
    numa_nodes,
)
from dpgateway_chardev.given import GivenAccess
from dpgateway_chardev.health import checks
from dpgateway_chardev.hostfiles import HostFiles
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.paths import about
from dpgateway_chardev.patterns import ANY_DEPTH, excludes, is_lasting, parse
from dpgateway_chardev.probing import Check


@dataclass(frozen=True, slots=True)
class NamedDevice(Device):
    """A device, and the node at its path when it was listed; None if there was none."""

    node: DevNode | None = None
    checks: tuple[Check, ...] = ()
    """The device's health probes."""


class NamedDevices:
    """The devices of one resource whose options have ``paths``."""

    def __init__(self, options: CharDeviceOptions, context: Context) -> None:
        self._options, self._context = options, context
        self._notices = Complaint(context.log, level=logging.INFO)
        self._watcher = Watcher(f"chardev {context.resource}", context.changed, Complaint(context.log))

    def find(self) -> Mapping[str, NamedDevice]:
        look = NamedLook(self._options)
        if self._watcher.watch(look.tree.directories):
            self._context.changed()  # a change may have come between the look and the new watch
        self._notices.say(*look.notices)
        return look.devices

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        """Raises DeviceUnavailable for a path that leads to another node than the listed one, from which the kubelet
        chose, and if access to a file can't be set; DriverError for two nodes at one container path.
        """
        taken: dict[str | None, DeviceNode] = {}
        for device in devices:
            found = DevTree(self._options.dev).look(device.id, self._options.type)
            listed = device.node if isinstance(device, NamedDevice) else None
            if found != listed:
                self._context.changed()
                now = f"{HOST_DEV}/{device.id} is {found} now, it was listed as {listed}"
                raise DeviceUnavailable(f"{device.id}: {found.reason if isinstance(found, NoNode) else now}")
            node = self._node(device.id)
            other = taken.setdefault(node.container_path, node)
            if other is not node:
                raise DriverError(
                    f"{other.host_path} and {node.host_path} can't both be {node.container_path} in one container: "
                    f"container_path is {self._options.container_path!r}, expected a path that contains {{id}}"
                )
        # all devices are there, so from here on the host may change
        files = HostFiles(self._options.roots, self._options.host)
        for device in devices:
            access = [GivenAccess.of(one, about(one.host_path, device.id)) for one in self._options.access]
            files.permit(device.id, access)
        return Allocation(device_nodes=tuple(taken.values()))

    def preview(self, device: Device) -> Allocation:
        return Allocation(device_nodes=(self._node(device.id),))

    def explain(self, about: str | None) -> Iterator[Candidate]:
        return NamedLook(self._options).explain(about)

    def close(self) -> None:
        self._watcher.close()

    def _node(self, path: str) -> DeviceNode:
        inside = self._options.container_path
        if inside is not None:
            inside = about(inside, path)
        return DeviceNode(f"{HOST_DEV}/{path}", inside, self._options.permissions)


class NamedLook:
    """One look at everything: its result is ``devices``, ``notices``, and the directories of ``tree``, to watch."""

    def __init__(self, options: CharDeviceOptions) -> None:
        self.tree = DevTree(options.dev)
        self.devices: dict[str, NamedDevice] = {}
        self._options = options
        self.notices: dict[str, None] = {}
        """Messages for the log about paths that globs match and that can't be offered; a set."""
        self._excluded: set[str] = set()
        """Paths that globs match and ``exclude`` removes."""
        self._exclude = [parse(path) for path in options.excluded]
        self._spelled_out = frozenset(options.literals)
        self._listings: dict[str, list[tuple[str, bool]]] = {}
        # every path is looked up before one is offered, because a node's owner depends on all paths to it
        found = {path: self.tree.look(path, options.type) for path in dict.fromkeys(self._paths(options))}
        self._seen = found
        self._nodes = {path: node for path, node in found.items() if isinstance(node, DevNode)}
        self._owners = self._choose()
        for path, node in found.items():
            if isinstance(node, NoNode):
                if path in self._spelled_out or node.unknown:  # unknown: perhaps still a device, so it is listed
                    self._add(path, None, Health.unhealthy(node.reason))
                else:
                    self.notices[node.reason] = None
            elif (owner := self._owners[node]) == path:
                self._add(path, node, Health.healthy())
            else:
                same = f"{HOST_DEV}/{path} is the same device as {HOST_DEV}/{owner} ({node}), which is offered already"
                if path in self._spelled_out:
                    self._add(path, node, Health.unhealthy(same))
                else:
                    self.notices[same] = None

    def explain(self, about: str | None) -> Iterator[Candidate]:
        """The result for each path that the paths and globs name; with ``about`` for that path, named or not."""
        meant = (
            dict.fromkeys([*self._seen, *sorted(self._excluded)])
            if about is None
            else (about.removeprefix(f"{HOST_DEV}/"),)
        )
        for path in meant:
            name, found = f"{HOST_DEV}/{path}", self._seen.get(path)
            kind = "char or block" if self._options.type == ANY_TYPE else self._options.type
            if path in self.devices:
                yield Candidate(name, device=path)
            elif path in self._excluded:
                expected = f"none of {', '.join(self._options.exclude)}"
                yield Candidate(name, test="exclude", found=name, expected=expected)
            elif isinstance(found, DevNode):
                other = f"the same device as {HOST_DEV}/{self._owners[found]}"
                yield Candidate(name, test="paths", found=other, expected="a device that isn't offered yet")
            elif found is not None:
                yield Candidate(name, test="type", found=found.reason, expected=f"a {kind} device")
            elif os.path.lexists(f"{self._options.dev}/{path}"):  # of what isn't there nothing is known
                yield Candidate(name, test="paths", found=name, expected=" or ".join(self._options.paths))

    def _paths(self, options: CharDeviceOptions) -> Iterator[str]:
        """All paths that are valid ids: literal paths, then the sorted matches of each glob, in configuration order."""
        yield from options.literals
        for glob in options.globs:
            for path in sorted(set(self._walk("", "", parse(glob)))):
                try:
                    Device(path)
                except ValueError as error:
                    self.notices[str(error)] = None
                else:
                    yield path

    def _choose(self) -> dict[DevNode, str]:
        """The owner path of each node: the first path, except that a link with a stable name beats the kernel's name,
        unless both are literal: then the order of the configuration decides.
        """
        names: dict[DevNode, list[str]] = {}
        for path, node in self._nodes.items():
            names.setdefault(node, []).append(path)
        owners: dict[DevNode, str] = {}
        for node, paths in names.items():
            owners[node] = first = paths[0]
            if self._nodes[first].real == first:
                links = (path for path in paths if is_lasting(path) and not {first, path} <= self._spelled_out)
                owners[node] = next(links, first)
        return owners

    def _add(self, path: str, node: DevNode | None, health: Health) -> None:
        attributes = {"path": f"{HOST_DEV}/{path}"}
        if node is None:
            self.devices[path] = NamedDevice(path, health, attributes=attributes)
            return
        attributes |= {"node": f"{HOST_DEV}/{node.real}", "number": f"{node.major}:{node.minor}"}
        own = checks(self._options, [(node, self._options.permissions)], lambda text: about(text, path))
        self.devices[path] = NamedDevice(
            path, health, numa_nodes(node), attributes=attributes, hardware=(str(node),), node=node, checks=tuple(own)
        )

    def _walk(self, path: str, real: str, parts: tuple[str, ...]) -> Iterator[str]:
        """The paths below the directory ``path`` that match the rest of a glob. ``real``: the directory's real path."""
        here, rest = parts[0], parts[1:]
        # ** also stands for no directory at all
        if here == ANY_DEPTH:
            yield from self._walk(path, real, rest)
        glob = "*" if here == ANY_DEPTH else here
        # noted even if nothing matches now, so that a later match is noticed
        self.tree.interest(real).globs.add(glob)
        for name, is_directory in self._list(real):
            inner = f"{path}/{name}" if path else name
            if not name_matches(name, glob):
                continue
            if excludes(inner, self._exclude):
                self._excluded.add(inner)
                continue
            if here == ANY_DEPTH:  # doesn't follow links, because they may form a loop
                if is_directory:
                    yield from self._walk(inner, f"{real}/{name}" if real else name, parts)
                continue
            if not rest:
                yield inner
                continue
            try:
                directory = self.tree.follow(name, real)
                leads_on = self.tree.at(directory).is_dir()
            except FileNotFoundError:
                continue
            except (OutsideError, OSError) as error:
                self.notices[str(error)] = None
                continue
            if leads_on:
                yield from self._walk(inner, directory, rest)

    def _list(self, real: str) -> list[tuple[str, bool]]:
        """The names in a real directory, each with whether it is a directory. Cached for this look."""
        if real not in self._listings:
            self._listings[real] = []
            try:
                with os.scandir(self.tree.at(real)) as entries:
                    self._listings[real] = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                self.notices[f"can't list {HOST_DEV}/{real}: {error.strerror}"] = None
        return self._listings[real]

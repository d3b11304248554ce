"""The driver itself: lists what a survey finds, and looks once more before it gives a node to a container."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from dpgateway import Allocation, Candidate, Context, Device, DeviceNode, DeviceUnavailable, DriverError, Health
from dpgateway.sysfs import (
    HOST_DEV,
    ChangedError,
    Complaint,
    DevTree,
    FollowedSurvey,
    FoundDevice,
    Look,
    NoNode,
    OutsideError,
    Survey,
    Watcher,
)
from dpgateway_chardev.deviceinfo import DeviceInfo
from dpgateway_chardev.given import Contribution, differing, together
from dpgateway_chardev.giving import Giver, MatchedDevice
from dpgateway_chardev.hostfiles import HostFiles
from dpgateway_chardev.named import NamedDevice, NamedDevices
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.probing import Check, Prober

MOST_AWAY = 4096
"""Absent devices whose hardware is remembered."""


class CharDevices:
    """Device nodes under /dev, by their paths or by what they are in sysfs. The listed values say what a device is; the
    gateway knows what containers have.
    """

    Options: ClassVar[type] = CharDeviceOptions
    release: Callable[[Sequence[Device]], None] | None = None
    """Nothing has to be done when devices are free, unless there are files about them."""

    def __init__(self, options: CharDeviceOptions, context: Context) -> None:
        self._options = options
        self._context = context
        name = f"chardev {context.resource}"
        # with match
        survey = Survey(options.selection, self._maker, context.held)
        self._followed = FollowedSurvey(name, survey, context.changed, context.log)
        # with paths
        self._notices = Complaint(context.log, level=logging.INFO)
        self._watcher = Watcher(name, context.changed, Complaint(context.log))

        self._prober: Prober | None = None
        if options.health is not None:
            self._prober = Prober(f"chardev {context.resource} probes", options.health, context.changed)
        self._info = DeviceInfo(context.resource, options.host)
        if options.device_info:
            self.release = self._release
        self._last: Mapping[str, tuple[str, ...]] = {}
        """The hardware of each device, also of absent ones."""

    def devices(self) -> Sequence[Device]:
        devices: Mapping[str, MatchedDevice | NamedDevice]
        checks: Mapping[str, Sequence[Check]]
        if self._options.match:
            with _listing():
                devices = self._followed.find()
            checks = {one.id: one.checks for one in devices.values() if isinstance(one, MatchedDevice)}
        else:
            named = NamedDevices(self._options)
            if self._watcher.watch(named.directories):
                self._context.changed()  # look once more, because a change may have come just before the new watch
            self._notices.say(*named.notices)
            devices, checks = named.devices, named.checks
        self._tell_changes({id_: one.hardware for id_, one in devices.items() if one.hardware})
        return self._probed(devices, checks)

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        if self._options.match:
            return self._together([(device.id, self._given(device)) for device in devices])
        nodes = self._check_paths([self._give(device) for device in devices])
        return Allocation(device_nodes=tuple(nodes))

    def preview(self, device: Device) -> Allocation:
        if isinstance(device, MatchedDevice) and device.given is not None:
            return together([(device.id, device.given)], self._context.resource)
        return Allocation(device_nodes=(self._node(device.id),))

    def explain(self, about: str | None) -> Iterable[Candidate]:
        if not self._options.match:
            yield from NamedDevices(self._options).explain(about)
            return
        with _listing():
            explained = tuple(Survey(self._options.selection, self._maker).explain(about))
        for one in explained:
            if one.why is None:
                yield from (Candidate(one.name, one.path, device=id_) for id_ in one.ids)
            else:
                yield Candidate(one.name, one.path, test=one.why.test, found=one.why.found, expected=one.why.expected)

    def _release(self, devices: Sequence[Device]) -> None:
        for device in devices:
            self._info.remove(device.id)

    def close(self) -> None:
        self._followed.close()
        self._watcher.close()
        if self._prober:
            self._prober.close()

    def _maker(self, look: Look) -> Callable[[FoundDevice], MatchedDevice]:
        return Giver(self._options, look).device

    def _probed(
        self, devices: Mapping[str, MatchedDevice | NamedDevice], checks: Mapping[str, Sequence[Check]]
    ) -> Sequence[Device]:
        """The devices, with what the probes have found out by now."""
        if self._prober is None:
            return tuple(devices.values())
        self._prober.watch(checks)
        reasons = {id_: self._prober.reason(id_) for id_, one in devices.items() if one.health.ok}
        return [
            replace(one, health=Health.unhealthy(reason)) if (reason := reasons.get(id_)) else one
            for id_, one in devices.items()
        ]

    def _tell_changes(self, now: Mapping[str, tuple[str, ...]]) -> None:
        for id_, hardware in now.items():
            if self._last.get(id_, hardware) != hardware:
                self._context.log.warning(
                    "%s is %s now, it was %s: containers that have it keep the old device",
                    id_ if self._options.match else f"{HOST_DEV}/{id_}", *map(", ".join, (hardware, self._last[id_])),
                )  # fmt: skip
        away = self._last.keys() - now.keys()
        self._last = {**self._last, **now} if len(away) <= MOST_AWAY else now

    def _given(self, device: Device) -> Contribution:
        """What a device gives. Raises DeviceUnavailable, unless it is what it was when the kubelet chose it."""
        if not isinstance(device, MatchedDevice) or device.given is None:
            self._followed.doubt()
            raise DeviceUnavailable(f"{device.id}: it was never listed with what it gives")
        try:
            now = self._followed.again(device.id, device.parts)
        except ChangedError as error:
            raise DeviceUnavailable(f"{device.id}: {error}") from error
        if now.given is None or now.given != device.given:
            self._followed.doubt()
            why = now.health.reason if now.given is None else differing(device.given, now.given)
            raise DeviceUnavailable(f"{device.id}: {why}")
        return now.given

    def _together(self, given: list[tuple[str, Contribution]]) -> Allocation:
        files = HostFiles(self._options.roots, self._options.host)
        allocation = together(given, self._context.resource)
        for id_, one in given:
            for access in one.access:
                try:
                    files.permit(access)
                except (OSError, OutsideError) as error:
                    why = f"{id_}: can't change who may use {access.path}: {error}"
                    raise DeviceUnavailable(why) from error
            if one.info:
                try:
                    self._info.write(id_, one.info)
                except (OSError, OutsideError) as error:
                    raise DriverError(f"{id_}: can't write its device-info file: {error}") from error
        return allocation

    def _give(self, device: Device) -> DeviceNode:
        """Refuses a device whose path leads to another node now than in the list, from which the kubelet chose it."""
        found = DevTree(self._options.dev).look(device.id, self._options.type)
        listed = device.node if isinstance(device, NamedDevice) else None
        if isinstance(found, NoNode):
            self._context.changed()
            raise DeviceUnavailable(f"{device.id}: {found.reason}")
        if found != listed:
            self._context.changed()
            raise DeviceUnavailable(f"{device.id}: {HOST_DEV}/{device.id} is {found} now, it was listed as {listed}")
        return self._node(device.id)

    def _node(self, path: str) -> DeviceNode:
        return DeviceNode(f"{HOST_DEV}/{path}", self._container_path(path), self._options.permissions)

    def _container_path(self, path: str) -> str | None:
        template = self._options.container_path
        return template and template.replace("{name}", path.rpartition("/")[2]).replace("{id}", path)

    def _check_paths(self, nodes: Sequence[DeviceNode]) -> Sequence[DeviceNode]:
        taken: dict[str | None, DeviceNode] = {}
        for node in nodes:
            other = taken.setdefault(node.container_path, node)
            if other is not node:
                raise DriverError(
                    f"{other.host_path} and {node.host_path} can't both be {node.container_path} in one container: "
                    f"container_path is {self._options.container_path!r}, expected a path that contains {{id}}"
                )
        return nodes


@contextmanager
def _listing() -> Iterator[None]:
    """Says which directory of sysfs can't be listed."""
    try:
        yield
    except OSError as error:
        raise DriverError(f"{error.filename} can't be listed: {error.strerror}") from error

"""The driver itself: lists what a survey finds, and looks once more before it gives a node to a container."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from dpgateway import Allocation, Candidate, Context, Device, DeviceNode, DeviceUnavailable, DriverError, Health
from dpgateway.sysfs import HOST_DEV, DevTree, NoNode, Notices, OutsideError, Uevent, Watcher
from dpgateway_chardev.deviceinfo import DeviceInfo
from dpgateway_chardev.given import Given, together
from dpgateway_chardev.giving import NothingToGive
from dpgateway_chardev.hostfiles import HostFiles
from dpgateway_chardev.matched import Concern, MatchSurvey
from dpgateway_chardev.memory import MatchedDevice, Memory, Proof
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.probing import Prober
from dpgateway_chardev.survey import NodeDevice, Survey

MOST_AWAY = 4096
"""Devices that are away, of which it is remembered what they were."""


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
        self._notices = Notices(context.log, logging.INFO)
        self._concern: Concern | None = None
        self._watcher = Watcher(
            f"chardev {context.resource}",
            context.changed,
            Notices(context.log, logging.WARNING),
            self._concerned if options.match else None,
        )
        self._prober: Prober | None = None
        if options.health is not None:
            self._prober = Prober(f"chardev {context.resource} probes", options.health, context.changed)
        self._info = DeviceInfo(context.resource, options.host)
        if options.device_info:
            self.release = self._release
        self._memory = Memory()
        self._proof = Proof()
        self._last: Mapping[str, tuple[str, ...]] = {}
        """What was behind each device, also of those that are away."""

    def devices(self) -> Sequence[Device]:
        survey = self._survey()
        if self._watcher.watch(survey.directories):
            self._memory.doubt()
            self._context.changed()  # look once more, because a change may have come just before the new watch
        self._notices.tell(survey.notices)
        self._tell_changes({id_: one.hardware for id_, one in survey.devices.items() if one.hardware})
        return self._probed(survey)

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
            return Survey(self._options).explain(about)
        survey = MatchSurvey(self._options)
        survey.find()
        return survey.explain(about)

    def _release(self, devices: Sequence[Device]) -> None:
        for device in devices:
            self._info.remove(device.id)

    def close(self) -> None:
        self._watcher.close()
        if self._prober:
            self._prober.close()

    def _survey(self) -> Survey | MatchSurvey:
        if not self._options.match:
            return Survey(self._options)
        if self._options.group is not None and self._options.group.by is None:
            self._memory.names.held = self._context.held()
        survey = MatchSurvey(self._options, self._memory)
        survey.find(self._proof.due(self._watcher.changes(), time.monotonic()))
        if self._proof.wanted:
            self._context.changed()
        self._concern = survey.concern
        return survey

    def _doubt(self) -> None:
        """Has everything looked at."""
        self._proof.wanted = True
        self._context.changed()

    def _probed(self, survey: Survey | MatchSurvey) -> Sequence[Device]:
        """The devices, with what the probes have found out by now."""
        devices = tuple(survey.devices.values())
        if self._prober is None:
            return devices
        self._prober.watch(survey.checks)
        reasons = {one.id: self._prober.reason(one.id) for one in devices if one.health.ok}
        return [
            replace(one, health=Health.unhealthy(reason)) if (reason := reasons.get(one.id)) else one for one in devices
        ]

    def _concerned(self, event: Uevent) -> bool:
        """Called on the watcher's thread."""
        return self._concern is None or self._concern.has(event)

    def _tell_changes(self, now: Mapping[str, tuple[str, ...]]) -> None:
        for id_, hardware in now.items():
            if self._last.get(id_, hardware) != hardware:
                self._context.log.warning(
                    "%s is %s now, it was %s: containers that have it keep the old device",
                    id_ if self._options.match else f"{HOST_DEV}/{id_}", *map(", ".join, (hardware, self._last[id_])),
                )  # fmt: skip
        away = self._last.keys() - now.keys()
        self._last = {**self._last, **now} if len(away) <= MOST_AWAY else now

    def _given(self, device: Device) -> Given:
        try:
            return MatchSurvey(self._options).give(device)
        except NothingToGive as error:
            self._doubt()
            raise DeviceUnavailable(f"{device.id}: {error}") from error

    def _together(self, given: list[tuple[str, Given]]) -> Allocation:
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
        listed = device.node if isinstance(device, NodeDevice) else None
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

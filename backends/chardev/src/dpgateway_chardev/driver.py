"""The driver itself: lists what a survey finds, and looks once more before it gives a node to a container."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar

from dpgateway import Allocation, Context, Device, DeviceNode, DeviceUnavailable, DriverError
from dpgateway_chardev.notices import Notices
from dpgateway_chardev.options import HOST_DEV, CharDeviceOptions
from dpgateway_chardev.survey import NodeDevice, Survey
from dpgateway_chardev.tree import NoNode, Tree
from dpgateway_chardev.watching import Watcher


class CharDevices:
    """Device nodes under /dev. The listed values say what a device is; the gateway knows what containers have."""

    Options: ClassVar[type] = CharDeviceOptions

    def __init__(self, options: CharDeviceOptions, context: Context) -> None:
        self._options = options
        self._context = context
        self._notices = Notices(context.log, logging.INFO)
        self._watcher = Watcher(f"chardev {context.resource}", context.changed, Notices(context.log, logging.WARNING))
        self._last: Mapping[str, NodeDevice] = {}

    def devices(self) -> Sequence[Device]:
        survey = Survey(self._options)
        if self._watcher.watch(survey.directories):
            self._context.changed()  # look once more, because a change may have come just before the new watch
        self._notices.tell(survey.notices)
        self._tell_changes(survey.devices)
        self._last = survey.devices
        return tuple(survey.devices.values())

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        nodes = self._check_paths([self._give(device) for device in devices])
        return Allocation(device_nodes=tuple(nodes))

    def close(self) -> None:
        self._watcher.close()

    def _tell_changes(self, now: Mapping[str, NodeDevice]) -> None:
        for path, device in now.items():
            before = self._last.get(path)
            if before and before.node and device.node and before.node != device.node:
                self._context.log.warning(
                    "%s/%s is %s now, it was %s: containers that have it keep the old device until they restart",
                    HOST_DEV, path, device.node, before.node,
                )  # fmt: skip

    def _give(self, device: Device) -> DeviceNode:
        """Refuses a device whose path leads to another node now than in the list, from which the kubelet chose it."""
        found = Tree(self._options.dev).look(device.id, self._options.type)
        listed = device.node if isinstance(device, NodeDevice) else None
        if isinstance(found, NoNode):
            self._context.changed()
            raise DeviceUnavailable(f"{device.id}: {found.reason}")
        if found != listed:
            self._context.changed()
            raise DeviceUnavailable(f"{device.id}: {HOST_DEV}/{device.id} is {found} now, it was listed as {listed}")
        return DeviceNode(f"{HOST_DEV}/{device.id}", self._container_path(device.id), self._options.permissions)

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

"""k8s-host-device-plugin: one resource, each of whose containers gets the same device nodes.

Its devices are numbers only, so that many containers can have the nodes: ours is one device with as many shares.

Source: everpeace/k8s-host-device-plugin, main.go, server.go, hostdevice.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpgateway.importing import Entries, Imported, ImportedResource, NotKept, Source, in_any_case
from dpgateway.sysfs import is_glob
from dpgateway_chardev.importers import DRIVER, MOST_SHARES, TOO_MANY
from dpgateway_chardev.importers.generic import ResourceOfGroups
from dpgateway_chardev.importers.generic_config import DevicePaths, Path
from dpgateway_chardev.importers.paths import is_directory

_EXPECTED = "a mapping with the keys resourceName, hostDevices, numDevices"
_OWN = ("resourceName", "numDevices")
_PATTERN = "there a container gets all that the pattern matches: write a match of these devices, with a group"
_DIRECTORY = "there, since August 2021, a container gets neither a directory nor its content"


@dataclass(frozen=True, slots=True)
class ExposedNode:
    """A device node, and its path in containers."""

    hostPath: str
    containerPath: str = ""
    permission: str = "mrw"


@dataclass(frozen=True, slots=True)
class HostDevices:
    """Its configuration. `healthCheckIntervalSeconds` has no equivalent: the kernel tells of each change."""

    resourceName: str
    hostDevices: tuple[ExposedNode, ...]
    numDevices: int
    socketName: str = ""
    healthCheckIntervalSeconds: int = 0


def k8s_host_device_plugin(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    # KubeVirt's machines and LINSTOR have a key of this name, too
    mappings = (
        one for one in source.holding("hostDevices") if one.problems or any(in_any_case(one, key) for key in _OWN)
    )
    found = Entries.of(mappings, HostDevices, source.nothing(_EXPECTED))
    resources, not_kept = list[ImportedResource](), list(found.not_kept)
    for written, one in found.read:
        name, at = one.resourceName.strip(), written.at("hostDevices")
        if patterns := [node.hostPath for node in one.hostDevices if is_glob(node.hostPath)]:
            not_kept.append(NotKept(at, f"the devices of {patterns[0]}", _PATTERN, name))
            continue
        whole = {node.hostPath for node in one.hostDevices if is_directory(node.hostPath, source.dev)}
        lost = [NotKept(at, f"the directory {path}", _DIRECTORY, name) for path in sorted(whole)]
        nodes = [node for node in one.hostDevices if node.hostPath not in whole]
        paths = tuple([Path(node.hostPath, node.containerPath, node.permission) for node in nodes])
        group = ResourceOfGroups(written, name, [DevicePaths(paths)], source.dev)
        options = group.options() if one.numDevices > 0 else None
        lost += group.not_kept
        if options is None:
            none = [NotKept(written.at("numDevices"), "the resource", "it offers none of it", name)]
            not_kept += lost or none
            continue
        if one.numDevices > MOST_SHARES:
            lost.append(NotKept(written.at("numDevices"), f"numDevices of {one.numDevices}", TOO_MANY, name))
        not_kept += lost
        more = {"shares": {"count": min(one.numDevices, MOST_SHARES), "ids": "{share}"}}
        resources.append(ImportedResource(name, written.place, DRIVER, options, more))
    return Imported(tuple(resources), tuple(not_kept))

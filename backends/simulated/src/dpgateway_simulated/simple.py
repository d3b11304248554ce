"""simple-device-plugin, whose devices are simulated: converts its configuration into options of this driver.

Source: yevgeny-shnaidman/simple-device-plugin, config.go, main.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpgateway.importing import Entries, Imported, ImportedResource, NotKept, Source

_KEYS = {
    "count": "numberDevicesOnNode",
    "device_id_prefix": "deviceIDPrefix",
    "env_prefix": "envPrefix",
}
"""The plugin's keys, by our options."""
_DIFFERENT = {
    "annotationPrefix": "there an annotation is PREFIX-ID without a value, here PREFIX_ID with one",
    "deviceFilePrefix": "there a node is /dev/PREFIX-ID, with the node's name in it, here /dev/PREFIX-NUMBER",
}
"""Why the other keys aren't kept."""
_NO_PREFIX = "without a prefix they begin with a hyphen there, so that pods which run keep ids that are Unhealthy here"


@dataclass(frozen=True, slots=True)
class SimplePluginFile:
    """Its configuration file."""

    resourceName: str
    numberDevicesOnNode: int
    pluginName: str = ""
    deviceIDPrefix: str = ""
    annotationPrefix: str = ""
    envPrefix: str = ""
    deviceFilePrefix: str = ""


def simple_device_plugin(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    nothing = source.nothing("a mapping with the keys resourceName, numberDevicesOnNode, ...")
    files = Entries.of(source.holding("numberDevicesOnNode", "resourceName"), SimplePluginFile, nothing)
    resources, not_kept = list[ImportedResource](), list(files.not_kept)
    for file, one in files.read:
        name = one.resourceName
        options = {ours: value for ours, theirs in _KEYS.items() if (value := getattr(one, theirs)) or ours == "count"}
        resources.append(ImportedResource(name, file.at("resourceName"), "simulated", options))
        not_kept += [NotKept(file.at(key), key, why, name) for key, why in _DIFFERENT.items() if getattr(one, key)]
        if not one.deviceIDPrefix:
            not_kept.append(NotKept(file.place, "the ids", _NO_PREFIX, name))
    return Imported(tuple(resources), tuple(not_kept))

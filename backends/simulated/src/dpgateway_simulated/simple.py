"""simple-device-plugin, whose devices are simulated: converts its configuration into options of this driver.

Source: yevgeny-shnaidman/simple-device-plugin, config.go, main.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpgateway.importing import Entries, Imported, ImportedResource, NotKept, Source, Written

_KEYS = {
    "count": "numberDevicesOnNode",
    "device_id_prefix": "deviceIDPrefix",
    "env_prefix": "envPrefix",
}
"""The plugin's keys, by our options."""


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
    resources = tuple(_resource(file, one) for file, one in files.read)
    return Imported(resources, (*files.not_kept, *(lost for file, one in files.read for lost in _not_kept(file, one))))


def _resource(file: Written, one: SimplePluginFile) -> ImportedResource:
    options = {ours: value for ours, theirs in _KEYS.items() if (value := getattr(one, theirs)) or ours == "count"}
    return ImportedResource(one.resourceName, file.at("resourceName"), "simulated", options)


def _not_kept(file: Written, one: SimplePluginFile) -> Iterator[NotKept]:
    told = {
        "annotationPrefix": "there an annotation is PREFIX-ID without a value, here PREFIX_ID with one",
        "deviceFilePrefix": "there a node is /dev/PREFIX-ID, with the node's name in it, here /dev/PREFIX-NUMBER",
    }
    for key, why in told.items():
        if getattr(one, key):
            yield NotKept(file.at(key), key, why, one.resourceName)
    if not one.deviceIDPrefix:
        why = "without a prefix they begin with a hyphen there, so that pods which run keep ids that are Unhealthy here"
        yield NotKept(file.place, "the ids", why, one.resourceName)

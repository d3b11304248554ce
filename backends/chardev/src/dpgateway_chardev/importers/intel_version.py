"""The version of Intel's plugin for GPUs, which decides its kernel drivers, and its resources for monitoring.

Source: intel/intel-device-plugins-for-kubernetes, v0.29.0, v0.30.0, v0.35.0 and v0.36.0, cmd/gpu_plugin/gpu_plugin.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpgateway.importing import Source, Written, flags, items, text

_XE, _SINGLE = (0, 30), (0, 36)
"""The first versions with the driver xe, and with one monitoring resource for all drivers."""
_VERSION = re.compile(r"[v^~=]*(\d+)\.(\d+)(?:\.[\dx*]+)?(?:[-+@].*)?")
_PLUGIN = re.compile(r"(?:.*/)?intel-gpu-plugin:([^@]+)(?:@.*)?")
_KEYS = ("version", "targetRevision", "tag", "newTag")
"""The keys of the version in releases, charts' values and Kustomizations; charts have the plugin's versions."""


def of_version(parts: Iterable[Written]) -> dict[str, object]:
    """The settings that follow from the version; none if no part has one."""
    for part in parts:
        image = _PLUGIN.fullmatch(text(part.below("image")))
        written = [one for key in _KEYS if (one := part.below(key)) is not None]
        words = [one for one in items(part.below("chart")) if isinstance(one.value, str)]  # of a helm command
        written += [value for name, value in flags(words) if name == "version"]
        for told in (image[1] if image else "", *(text(one) or one.text for one in written)):
            if match := _VERSION.fullmatch(told):
                version = int(match[1]), int(match[2])
                return {"monitoringMode": "single" if version >= _SINGLE else "split", "knowsXe": version >= _XE}
    return {}


def chart_of(release: Written, source: Source) -> list[Written]:
    """The parts of the OCIRepository with the chart of a release of Flux, if it is in the same file."""
    name = text(release.part("spec", "chartRef", "name"))
    repositories = source.objects("OCIRepository") if name else ()
    return [part for one in repositories if text(one.part("metadata", "name")) == name for part in one.parts()]

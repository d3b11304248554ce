"""The settings of Intel's device plugins: in the operator's objects, in charts' values, and in containers' flags.

Each plugin has a few settings, under the same names wherever they are written, except for the spelling of flags.

Source: intel/intel-device-plugins-for-kubernetes, pkg/apis/deviceplugin/v1, cmd/*_plugin; intel/helm-charts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from dpgateway.importing import Source, Written, in_any_case, items, text
from dpgateway_chardev.importers.intel_flags import SGX_OF_FLAGS, of_flags, typed_flag
from dpgateway_chardev.importers.intel_version import chart_of, of_version

_PLUGINS = "gpu|qat|sgx|dsa|iaa|dlb|npu|fpga"
_KINDS = tuple(f"{plugin.capitalize()}DevicePlugin" for plugin in _PLUGINS.split("|"))
_IMAGE = re.compile(rf"(?:.*/)?intel-({_PLUGINS})-plugin(?:[:@].*)?")
_CHART = re.compile(rf"(?:.*/)?intel-device-plugins?-({_PLUGINS})")
"""The name of a chart, and of releases of it whose chart has another name."""
_CHART_OF_FLAGS = re.compile(r"(?:.*/)?intel-gpu-plugin")
"""The name of k8s-at-home's chart, whose values have the container's flags, and needn't have the image."""
_VERSION_OF_ITS_IMAGE = "0.20.0"
_OWN_NAME = re.compile(rf"(?:intel-)?({_PLUGINS})-?(?:device-?)?plugin.*")
_SGX_OF_OBJECT = 1
"""The operator's default for both limits, which it writes into the flags."""
_OF_CHARTS: Mapping[str, Mapping[str, Any]] = {
    "gpu": {"enableMonitoring": True},
    "sgx": {"enclaveLimit": SGX_OF_FLAGS, "provisionLimit": SGX_OF_FLAGS},
    "dsa": {"sharedDevNum": 10},
    "iaa": {"sharedDevNum": 10},
}
"""The charts' defaults that differ from the operator's."""
_FILES = ("valuesFrom", "valueFiles", "valuesFile")
"""Where releases of Flux, of Argo CD and of Kustomizations name other values."""


@dataclass(frozen=True, slots=True)
class IntelPlugin:
    """The settings of one plugin that decide its devices."""

    sharedDevNum: int = 1
    preferredAllocationPolicy: str = ""
    # gpu
    allowIDs: str = ""
    denyIDs: str = ""
    bypathMode: str = "single"
    enableMonitoring: bool = False
    monitoringMode: str = ""
    knowsXe: bool = True
    """Whether the plugin's version knows this driver."""
    # qat
    dpdkDriver: str = "vfio-pci"
    kernelVfDrivers: tuple[str, ...] = ("4xxxvf", "420xxvf")
    maxNumDevices: int = 0
    # sgx
    enclaveLimit: int = _SGX_OF_OBJECT
    provisionLimit: int = _SGX_OF_OBJECT
    dcapInfraResources: bool = False
    # dsa
    driver: str = "idxd"
    # of objects only
    initImage: str = ""
    provisioningConfig: str = ""
    nodeSelector: Mapping[str, str] = field(default_factory=dict)
    otherValues: bool = False
    """Whether a release takes values from elsewhere."""


_KEYS = tuple(IntelPlugin.__dataclass_fields__)


def settings_of(source: Source) -> Iterator[tuple[str, Written]]:
    """The name of each plugin, with a mapping of its settings, by their names in objects."""
    objects = list(source.objects(*_KINDS))
    for one in objects:
        plugin = text(one.below("kind")).removesuffix("DevicePlugin").lower()
        yield plugin, _of_version(_known(one.part("spec")), [one.part("spec")])
    specs = {id(one.below("spec")) for one in objects}
    for one in source.everywhere("intel"):
        image = one.below("image")
        name = text(image) or text(image and image.below("repository"))
        match = _IMAGE.fullmatch(name)
        if not name and items(one.below("args")):  # a patch names the container only
            match = _OWN_NAME.fullmatch(text(one.below("name")))
        if match is not None and id(one) not in specs:
            yield match[1], _of_version(of_flags(one, source), [one, *([image] if image else [])])
    yield from _of_charts(source)


def _of_charts(source: Source) -> Iterator[tuple[str, Written]]:
    """The settings of charts: in releases, which contain the chart's name, and in files of values."""
    alone = list(_of_values(source))
    # of Flux, Argo CD and k3s, of Kustomizations, and of Helmfile
    releases = list(source.objects("HelmRelease", "Application", "ApplicationSet", "HelmChart"))
    for one in source.holding("helmCharts", "releases"):
        releases += (*items(one.below("helmCharts")), *items(one.below("releases")))
    for one in releases:
        own = [part for part in one.parts() if "dependsOn" not in part.place.key]
        chart = next((found for part in own if (found := _CHART.fullmatch(text(part)))), None)
        inside = replace(source, documents=(one,))
        values = next(inside.holding(*_KEYS) if chart else filter(_holds, inside.everywhere(*_KEYS)), None)
        if chart is None and values is not None:
            chart = _OWN_NAME.fullmatch(text(values.below("name")))
        elsewhere = next((value for part in own for key in _FILES if (value := part.below(key))), None)
        if chart is not None and not (elsewhere and any(plugin == chart[1] for plugin, _ in alone)):
            # the parameters of a release, in the form of Argo CD and Helmfile
            pairs = ((text(part.below("name")), part.below("value")) for part in own)
            given = {key: value for key, value in pairs if value and key in _KEYS}
            more = {key: replace(at, value=typed_flag(text(at) or str(at.value))) for key, at in given.items()}
            more |= {"otherValues": replace(elsewhere, value=True)} if elsewhere else {}
            plugin, settings = _rendered(chart[1], values or Written({}, one.place), more)
            yield plugin, _of_version(settings, [*own, *chart_of(one, source)])
        elif chart is None and _is_chart_of_flags(own):
            flagged = next((part for part in own if items(part.below("args"))), Written({}, one.place))
            its_own = Written({"tag": Written(_VERSION_OF_ITS_IMAGE, flagged.place)}, flagged.place)
            yield "gpu", _of_version(of_flags(flagged, source), [flagged.part("image"), its_own])
    yield from alone


def _is_chart_of_flags(release: Sequence[Written]) -> bool:
    """Whether the release is of k8s-at-home's chart, and names no image; with an image it is read as a container."""
    charts = [one.below("chart") for one in release]
    names = [text(name) for chart in charts if chart for name in (chart, *items(chart))]
    images = (text(one.part("image", "repository")) or text(one.below("image")) for one in release)
    return any(map(_CHART_OF_FLAGS.fullmatch, names)) and not any(map(_IMAGE.fullmatch, images))


def _of_values(source: Source) -> Iterator[tuple[str, Written]]:
    """The settings in files of values, also those in ConfigMaps."""
    maps = (replace(source, documents=(one,)).everywhere(*_KEYS) for one in source.objects("ConfigMap"))
    for one in (*source.documents, *chain.from_iterable(maps)):
        name = text(one.below("name")) if _holds(one) else ""
        if named := _OWN_NAME.fullmatch(name) or _CHART.fullmatch(name):
            plugin, settings = _rendered(named[1], one, {})
            yield plugin, _of_version(settings, one.parts())
    for one in source.documents:
        for key, part in one.value.items() if isinstance(one.value, dict) else ():
            if chart := _CHART.fullmatch(key):  # a chart in a chart
                plugin, settings = _rendered(chart[1], part, {})
                yield plugin, _of_version(settings, part.parts())


def _rendered(plugin: str, values: Written, more: dict[str, Written]) -> tuple[str, Written]:
    """The settings of the object that a chart renders from values. A chart renders text, so "3" becomes 3."""
    known: dict[str, Written] = _known(values).value
    given = {key: replace(one, value=typed_flag(text(one))) if text(one) else one for key, one in known.items()}
    defaults = {key: Written(value, values.place) for key, value in _OF_CHARTS.get(plugin, {}).items()}
    return plugin, Written(defaults | given | more, values.place)


def _of_version(settings: Written, parts: Iterable[Written]) -> Written:
    """Adds the settings that follow from the plugin's version, unless they are written."""
    decided = {key: Written(value, settings.place) for key, value in of_version(parts).items()}
    return replace(settings, value=decided | settings.value)


def _holds(one: Written) -> bool:
    keys = one.value if isinstance(one.value, dict) else {}
    return bool({"sharedDevNum", "enclaveLimit", "provisionLimit", "kernelVfDrivers", "nodeFeatureRule"} & set(keys))


def _known(spec: Written) -> Written:
    """The known settings of an object or a chart; a chart's initImage is a mapping."""
    found = {key: value for key in _KEYS if (value := in_any_case(spec, key)) is not None}
    policy = in_any_case(spec, "allocationPolicy")
    init = found.get("initImage")
    if init is not None and isinstance(init.value, dict):
        found["initImage"] = replace(init, value="" if init.part("enable").value is False else "yes")
    return Written(found | ({"preferredAllocationPolicy": policy} if policy else {}), spec.place)

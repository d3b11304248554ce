"""Intel's device plugins: the operator's objects, charts' values and containers' flags, as resources of this driver.

Each plugin has a few settings, under the same names wherever they are written but for the spelling of flags. What the
plugins offer, byte by byte, is in the examples of this repository.

Source: intel/intel-device-plugins-for-kubernetes, pkg/apis/deviceplugin/v1, cmd/*_plugin; intel/helm-charts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any

from dpgateway.importing import (
    Entries,
    Imported,
    ImportedResource,
    NotKept,
    Source,
    Written,
    in_any_case,
    items,
    text,
)
from dpgateway_chardev.importers import DRIVER, MOST_SHARES, RUNNING, TOO_MANY
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
"""The limits, if none is written: of the operator, which writes the flags."""
_OF_CHARTS: Mapping[str, Mapping[str, Any]] = {
    "gpu": {"enableMonitoring": True},
    "sgx": {"enclaveLimit": SGX_OF_FLAGS, "provisionLimit": SGX_OF_FLAGS},
    "dsa": {"sharedDevNum": 10},
    "iaa": {"sharedDevNum": 10},
}
"""What the values of charts are that aren't written, where the operator has other defaults."""
_VFIO: list[Any] = [
    {"host_path": ["/dev/vfio/{attr:iommu_group}", "/dev/vfio/noiommu-{attr:iommu_group}"]},
    "/dev/vfio/vfio",
]
_QAT = {
    "dh895xccvf": ["0442", "0443"],
    "c4xxxvf": ["18a1"],
    "c3xxxvf": ["19e3"],
    "4xxxvf": ["4941", "4943", "4945"],
    "420xxvf": ["4947"],
    "6xxxvf": ["4949"],
    "c6xxvf": ["37c9"],
    "d15xxvf": ["6f55"],
}
"""The functions of a kernel driver."""
_SERVICES = {"cy": ["sym;asym", "asym;sym"], "dc": ["dc"], "sym": ["sym"], "asym": ["asym"], "dcc": ["dcc"]}
_QAT_FILE = "/sys/kernel/debug/qat_{attr:physfn/driver}_{attr:physfn}/"
_NPUS = ["0x7e4c", "0x643e", "0xad1d", "0x7d1d", "0xb03e", "0xfd3e", "0xd71d"]
_IDXD = ["0x0b25", "0x11fb", "0x1212"]

_FILES = ("valuesFrom", "valueFiles", "valuesFile")
"""Where releases of Flux, of Argo CD and of Kustomizations name other values."""
_ELSEWHERE = "these values aren't in this file, so the counts may be others: give both, with a line --- between them"
_HAS_IT = "intel.feature.node.kubernetes.io/"
"""Labels that a node has with the hardware, whose devices are found anyway."""
_PREFERENCES = {"balanced": "spread", "packed": "packed"}
_SET_UP = "it sets the devices up before the plugin starts, and the gateway changes none: do that by other means"
_BALANCED = "there it takes functions of different PFs, and the gateway doesn't know which belong together"


@dataclass(frozen=True, slots=True)
class IntelPlugin:
    """The settings of one of the plugins that decide what it offers."""

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


def intel_device_plugins(source: Source) -> Imported:
    """Converts their configuration. Raises InvalidConfiguration."""
    found = list(_settings(source))
    expected = "an object such as GpuDevicePlugin, a container of intel-gpu-plugin, or values of its chart"
    entries = Entries.of([settings for _, settings in found], IntelPlugin, source.nothing(expected))
    plugins = {id(settings): plugin for plugin, settings in found}
    resources, not_kept = list[ImportedResource](), list(entries.not_kept)
    for written, one in entries.read:
        plugin = plugins[id(written)]
        made = list(_TRANSLATORS[plugin](one))
        more: dict[str, Any] = {}
        nodes = {key: value for key, value in one.nodeSelector.items() if not key.startswith(_HAS_IT)}
        if plugin == "gpu" and one.preferredAllocationPolicy in _PREFERENCES:
            more["preference"] = _PREFERENCES[one.preferredAllocationPolicy]
        for name, options, shares in made:
            counts: dict[str, Any] = {"shares": shares} if shares else {}
            warnings = tuple(_warnings(one))
            resources.append(ImportedResource(name, written.place, DRIVER, options, more | counts, warnings, nodes))
        first = made[0][0] if made else ""
        for key, why in _lost(plugin, one):
            place = (written.below(key) or written).place
            not_kept.append(NotKept(place, key, why, first))
    return Imported(tuple(resources), tuple(not_kept))


# where the settings are


def _settings(source: Source) -> Iterator[tuple[str, Written]]:
    """The plugins, each with a mapping of its settings by their names in objects."""
    objects = list(source.objects(*_KINDS))
    yield from ((_plugin_of_kind(one), _of_version(_known(one.part("spec")), [one.part("spec")])) for one in objects)
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
    """Those of charts: of releases, whose chart's name is somewhere in them, and of files of values."""
    alone = list(_of_values(source))
    for one in _releases(source):
        own = [part for part in one.parts() if "dependsOn" not in part.place.key]
        chart = next((found for part in own if (found := _CHART.fullmatch(text(part)))), None)
        inside = replace(source, documents=(one,))
        values = next(inside.holding(*_KEYS) if chart else filter(_holds, inside.everywhere(*_KEYS)), None)
        if chart is None and values is not None:
            chart = _OWN_NAME.fullmatch(text(values.below("name")))
        elsewhere = next((value for part in own for key in _FILES if (value := part.below(key))), None)
        if chart is not None and not (elsewhere and any(plugin == chart[1] for plugin, _ in alone)):
            more = {"otherValues": replace(elsewhere, value=True)} if elsewhere else {}
            plugin, settings = _rendered(chart[1], values or Written({}, one.place), _parameters(own) | more)
            yield plugin, _of_version(settings, [*own, *chart_of(one, source)])
        elif chart is None and _is_chart_of_flags(own):
            flagged = next((part for part in own if items(part.below("args"))), Written({}, one.place))
            its_own = Written({"tag": Written(_VERSION_OF_ITS_IMAGE, flagged.place)}, flagged.place)
            yield "gpu", _of_version(of_flags(flagged, source), [flagged.part("image"), its_own])
    yield from alone


def _is_chart_of_flags(release: Sequence[Written]) -> bool:
    """Whether the release is of k8s-at-home's chart, and names no image, which makes it a container like others."""
    charts = [one.below("chart") for one in release]
    names = [text(name) for chart in charts if chart for name in (chart, *items(chart))]
    images = (text(one.part("image", "repository")) or text(one.below("image")) for one in release)
    return any(map(_CHART_OF_FLAGS.fullmatch, names)) and not any(map(_IMAGE.fullmatch, images))


def _releases(source: Source) -> Iterator[Written]:
    """Those of Flux, Argo CD and k3s, of Kustomizations, and of Helmfile."""
    yield from source.objects("HelmRelease", "Application", "ApplicationSet", "HelmChart")
    for one in source.holding("helmCharts", "releases"):
        yield from (*items(one.below("helmCharts")), *items(one.below("releases")))


def _of_values(source: Source) -> Iterator[tuple[str, Written]]:
    """Those of files of values, also in ConfigMaps."""
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
    """The settings of the object that a chart makes of values, as text: "3" is 3 there."""
    known: dict[str, Written] = _known(values).value
    given = {key: replace(one, value=typed_flag(text(one))) if text(one) else one for key, one in known.items()}
    defaults = {key: Written(value, values.place) for key, value in _OF_CHARTS.get(plugin, {}).items()}
    return plugin, Written(defaults | given | more, values.place)


def _of_version(settings: Written, parts: Iterable[Written]) -> Written:
    """With what the plugin's version decides, unless it is written."""
    decided = {key: Written(value, settings.place) for key, value in of_version(parts).items()}
    return replace(settings, value=decided | settings.value)


def _parameters(parts: Sequence[Written]) -> dict[str, Written]:
    """What a release sets one by one, as Argo CD and Helmfile write it."""
    pairs = ((text(part.below("name")), part.below("value")) for part in parts)
    return {
        key: replace(one, value=typed_flag(text(one) or str(one.value))) for key, one in pairs if one and key in _KEYS
    }


def _plugin_of_kind(written: Written) -> str:
    return text(written.below("kind")).removesuffix("DevicePlugin").lower()


def _holds(one: Written) -> bool:
    keys = one.value if isinstance(one.value, dict) else {}
    return bool({"sharedDevNum", "enclaveLimit", "provisionLimit", "kernelVfDrivers", "nodeFeatureRule"} & set(keys))


def _known(spec: Written) -> Written:
    """The settings of an object or a chart that decide something; a chart's initImage is a mapping."""
    found = {key: value for key in _KEYS if (value := in_any_case(spec, key)) is not None}
    policy = in_any_case(spec, "allocationPolicy")
    init = found.get("initImage")
    if init is not None and isinstance(init.value, dict):
        found["initImage"] = replace(init, value="" if init.part("enable").value is False else "yes")
    return Written(found | ({"preferredAllocationPolicy": policy} if policy else {}), spec.place)


# what they are here


_Made = tuple[str, dict[str, Any], Any]
"""A resource: its name, the options, the shares."""


def _shares(count: int) -> dict[str, Any]:
    return {"count": min(max(count, 1), MOST_SHARES), "ids": "{id}-{share}"}


def _gpu(one: IntelPlugin) -> Iterator[_Made]:
    known = ["i915", "xe"] if one.knowsXe else ["i915"]
    for kernel in known:
        match = _card(one, kernel)
        nodes: list[Any] = ["/dev/dri/{each:device/drm/card*}", "/dev/dri/{each:device/drm/renderD*}"]
        if one.bypathMode != "none":
            link = "/dev/dri/by-path/pci-{attr:device}-"
            nodes += [{"host_path": f"{link}{end}", "optional": True} for end in ("card", "render")]
        yield (
            f"gpu.intel.com/{kernel}",
            {"match": match, "id": "{attr:device}", "nodes": nodes},
            _shares(one.sharedDevNum),
        )
    if one.enableMonitoring:
        split = one.monitoringMode == "split"
        for kernel in known if split else ():
            yield f"gpu.intel.com/{kernel}_monitoring", _monitoring(one, [kernel]), None
        if not split:
            yield "gpu.intel.com/monitoring", _monitoring(one, ["i915", "xe"]), None


def _card(one: IntelPlugin, kernel: Any) -> dict[str, Any]:  # noqa: ANN401  a driver or several
    allowed, denied = (_ids(text) for text in (one.allowIDs, one.denyIDs))
    models = ({"glob": allowed} if allowed else {}) | ({"none_of": denied} if denied else {})
    attr: dict[str, Any] = {"device/vendor": "0x8086", "device/driver": kernel}
    attr |= {"device/device": models} if models else {}
    attr["device/sriov_numvfs"] = {"glob": "0", "or_absent": True}  # no PF that has VFs
    return {"subsystem": "drm", "kernel": {"regex": "card[0-9]+"}, "attr": attr}


def _ids(text: str) -> list[str]:
    return [one.strip().lower() for one in text.split(",") if one.strip()]


def _monitoring(one: IntelPlugin, kernels: list[str]) -> dict[str, Any]:
    optional = ("/dev/dri/{each:device/drm/renderD*}", "/dev/{each:device/*.mei-*/mei/*}")
    return {
        "match": _card(one, kernels),
        "group": "all",
        "nodes": ["/dev/dri/{each:device/drm/card*}", *({"host_path": path, "optional": True} for path in optional)],
    }


def _qat(one: IntelPlugin) -> Iterator[_Made]:
    models = [f"0x{model}" for driver in one.kernelVfDrivers for model in _QAT.get(driver, ())]
    function: dict[str, Any] = {"subsystem": "pci", "driver": one.dpdkDriver}
    attr: dict[str, Any] = {"vendor": "0x8086", "device": models}
    config = f"{_QAT_FILE}dev_cfg#ServicesEnabled"
    unsaid = function | {"attr": attr | {"physfn/qat/state": {"none_of": "up", "or_absent": True}}}
    alone: dict[str, Any] = function | {"attr": attr | {"physfn": {"present": False}}}  # in a virtual machine
    kinds: dict[str, list[dict[str, Any]]] = {
        service: [
            function | {"attr": attr | {"physfn/qat/state": "up", "physfn/qat/cfg_services": values}},
            unsaid | {"file": {config: values}},
        ]
        for service, values in _SERVICES.items()
    }
    kinds["generic"] = [alone, unsaid | {"file": {config: {"present": False}}}]
    nodes = _VFIO if one.dpdkDriver == "vfio-pci" else ["/dev/{entry:uio/*}"]
    heartbeat = {"host_path": f"{_QAT_FILE}heartbeat/status", "text": {"none_of": "-1", "or_absent": True}}
    for service, matches in kinds.items():
        options: dict[str, Any] = {"match": matches, "nodes": nodes, "env": {"QAT{index}": "{kernel}"}}
        if service != "generic":
            options["requires"] = [heartbeat]
        if one.dpdkDriver != "vfio-pci":
            device = "/sys/class/uio/{entry:uio/*}/device"
            options["mounts"] = [{"host_path": device, "container_path": device}]
        yield f"qat.intel.com/{service}", options, None


def _sgx(one: IntelPlugin) -> Iterator[_Made]:
    for name, limit in (("enclave", one.enclaveLimit), ("provision", one.provisionLimit)):
        match = {"subsystem": "misc", "kernel": f"sgx_{name}"}
        options: dict[str, Any] = {"match": match, "group": f"sgx-{name}", "nodes": ["{devnode}"]}
        yield f"sgx.intel.com/{name}", options, _shares(limit)


def _idxd(one: IntelPlugin, domain: str, devices: str) -> Iterator[_Made]:
    for kind, mode in product(("user", "kernel"), ("shared", "dedicated")):
        name = f"wq-{kind}-{mode}"
        attr = {"state": "enabled", "mode": mode, "type": kind}
        match = {"subsystem": "dsa", "kernel": "wq*", "attr": attr, "kernels": f"{devices}*"}
        path = f"/dev/{devices}/{{kernel}}"
        nodes: list[Any] = [path, {"host_path": path, "container_path": "/dev/char/{major}:{minor}"}]
        options = {"match": match, "id": f"{name}-{{kernel}}", "nodes": nodes if kind == "user" else []}
        yield f"{domain}/{name}", options, _shares(one.sharedDevNum if mode == "shared" else 1)


def _dsa(one: IntelPlugin) -> Iterator[_Made]:
    if one.driver != "vfio-pci":
        yield from _idxd(one, "dsa.intel.com", "dsa")
        return
    match = {"subsystem": "pci", "driver": "vfio-pci", "attr": {"vendor": "0x8086", "device": _IDXD}}
    nodes = ["/dev/vfio/{attr:iommu_group}", "/dev/vfio/vfio"]
    yield "dsa.intel.com/vfio", {"match": match, "nodes": nodes, "env": {"VFIO_BDF{index}": "{kernel}"}}, None


def _iaa(one: IntelPlugin) -> Iterator[_Made]:
    yield from _idxd(one, "iaa.intel.com", "iax")


def _dlb(_: IntelPlugin) -> Iterator[_Made]:
    kinds: dict[str, dict[str, Any]] = {
        "pf": {"device/sriov_numvfs": "0"},
        "vf": {"device/*": {"present": True}, "device/sriov_numvfs": {"present": False}},
    }
    for name, attr in kinds.items():
        match = {"subsystem": "dlb2", "kernel": "dlb*", "attr": attr}
        yield f"dlb.intel.com/{name}", {"match": match, "id": "/dev/{kernel}", "nodes": ["/dev/{kernel}"]}, None


def _npu(one: IntelPlugin) -> Iterator[_Made]:
    attr = {"device/vendor": "0x8086", "device/device": _NPUS}
    match = {"subsystem": "accel", "kernel": {"regex": "accel[0-9]+"}, "attr": attr}
    options: dict[str, Any] = {"match": match, "id": "{attr:device}", "nodes": ["/dev/accel/{kernel}"]}
    yield "npu.intel.com/accel", options, _shares(one.sharedDevNum)


def _fpga(_: IntelPlugin) -> Iterator[_Made]:
    yield from ()


_TRANSLATORS: Mapping[str, Callable[[IntelPlugin], Iterator[_Made]]] = {
    "gpu": _gpu,
    "qat": _qat,
    "sgx": _sgx,
    "dsa": _dsa,
    "iaa": _iaa,
    "dlb": _dlb,
    "npu": _npu,
    "fpga": _fpga,
}


# what of it isn't kept


def _lost(plugin: str, one: IntelPlugin) -> Iterator[tuple[str, str]]:
    """The settings that aren't kept, with reasons."""
    counted = {"sgx": ("enclaveLimit", "provisionLimit")}.get(plugin, ("sharedDevNum",))
    others = [driver for driver in one.kernelVfDrivers if driver not in _QAT]
    lost: list[tuple[str, object, str, str]] = [
        (plugin, one.otherValues, "otherValues", _ELSEWHERE),
        ("fpga", True, "mode", "boards need the driver fpga of dpgateway-fpga, whose README says how to name them"),
        ("gpu npu", True, "the ids", f"there they are the kernel's numbers, which another start may change; {RUNNING}"),
        ("qat dsa iaa dlb", one.initImage, "initImage", _SET_UP),
        ("qat dsa iaa dlb", one.provisioningConfig, "provisioningConfig", _SET_UP),
        ("gpu", one.bypathMode == "all", "bypathMode", "a container gets the links of its own GPU, not those of all"),
        ("qat", True, "other services", f"a resource is for one service, and here are {', '.join(_SERVICES)}, generic"),
        ("qat", one.maxNumDevices, "maxNumDevices", "all functions that match are offered"),
        ("qat", others, "kernelVfDrivers", f"the functions of {', '.join(others)} aren't known"),
        ("qat", one.preferredAllocationPolicy == "balanced", "preferredAllocationPolicy", _BALANCED),
        ("sgx", one.dcapInfraResources, "dcapInfraResources", "write qe and registration with both nodes of SGX"),
        *((plugin, getattr(one, key) > MOST_SHARES, key, TOO_MANY) for key in counted),
    ]
    yield from ((key, why) for plugins, is_so, key, why in lost if is_so and plugin in plugins.split())


def _warnings(one: IntelPlugin) -> Iterator[str]:
    if one.enableMonitoring and not one.monitoringMode:
        yield "monitoring is one resource since 0.36, and i915_monitoring and xe_monitoring before"

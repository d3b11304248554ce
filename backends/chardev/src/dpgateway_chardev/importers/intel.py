"""Intel's device plugins as resources of this driver. The repository's examples show, byte by byte, what they offer.

Source: intel/intel-device-plugins-for-kubernetes, cmd/*_plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from dpgateway.importing import Entries, Imported, ImportedResource, NotKept, Source
from dpgateway_chardev.importers import DRIVER, MOST_SHARES, RUNNING, TOO_MANY
from dpgateway_chardev.importers.intel_settings import IntelPlugin, settings_of

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
_ELSEWHERE = "these values aren't in this file, so the counts may be others: give both, with a line --- between them"
_HAS_IT = "intel.feature.node.kubernetes.io/"
"""Labels that a node has with the hardware, whose devices are found anyway."""
_PREFERENCES = {"balanced": "spread", "packed": "packed"}
_SET_UP = "it sets the devices up before the plugin starts, and the gateway changes none: do that by other means"
_OTHER_VERSIONS = "monitoring is one resource since 0.36, and i915_monitoring and xe_monitoring before"
_BALANCED = "there it takes functions of different PFs, and the gateway doesn't know which belong together"


def intel_device_plugins(source: Source) -> Imported:
    """Converts their configuration. Raises InvalidConfiguration."""
    found = list(settings_of(source))
    expected = "an object such as GpuDevicePlugin, a container of intel-gpu-plugin, or values of its chart"
    entries = Entries.of([settings for _, settings in found], IntelPlugin, source.nothing(expected))
    plugins = {id(settings): plugin for plugin, settings in found}
    resources, not_kept = list[ImportedResource](), list(entries.not_kept)
    for written, one in entries.read:
        plugin = plugins[id(written)]
        made = list(_TRANSLATORS[plugin](one)) if plugin in _TRANSLATORS else []
        more: dict[str, Any] = {}
        nodes = {key: value for key, value in one.nodeSelector.items() if not key.startswith(_HAS_IT)}
        if plugin == "gpu" and one.preferredAllocationPolicy in _PREFERENCES:
            more["preference"] = _PREFERENCES[one.preferredAllocationPolicy]
        for name, options, shares in made:
            counts: dict[str, Any] = {"shares": shares} if shares else {}
            versions = one.enableMonitoring and not one.monitoringMode
            warnings = (_OTHER_VERSIONS,) if versions else ()
            resources.append(ImportedResource(name, written.place, DRIVER, options, more | counts, warnings, nodes))
        first = made[0][0] if made else ""
        for key, why in _lost(plugin, one):
            place = (written.below(key) or written).place
            not_kept.append(NotKept(place, key, why, first))
    return Imported(tuple(resources), tuple(not_kept))


# the resources


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
    allowed, denied = (
        [id_.strip().lower() for id_ in text.split(",") if id_.strip()] for text in (one.allowIDs, one.denyIDs)
    )
    models = ({"glob": allowed} if allowed else {}) | ({"none_of": denied} if denied else {})
    attr: dict[str, Any] = {"device/vendor": "0x8086", "device/driver": kernel}
    attr |= {"device/device": models} if models else {}
    attr["device/sriov_numvfs"] = {"glob": "0", "or_absent": True}  # no PF that has VFs
    return {"subsystem": "drm", "kernel": {"regex": "card[0-9]+"}, "attr": attr}


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


_TRANSLATORS: Mapping[str, Callable[[IntelPlugin], Iterator[_Made]]] = {
    "gpu": _gpu,
    "qat": _qat,
    "sgx": _sgx,
    "dsa": _dsa,
    "iaa": partial(_idxd, domain="iaa.intel.com", devices="iax"),
    "dlb": _dlb,
    "npu": _npu,
}
"""Of the plugin for FPGAs nothing is kept."""


# the losses


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

"""sriov-network-device-plugin: pools of PCI functions, by its resourceList.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, pkg/types/types.go, pkg/accelerator,
pkg/resources/pool_stub.go, pkg/infoprovider/extraInfoProvider.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from dpgateway.importing import (
    HOST,
    Entries,
    Imported,
    ImportedResource,
    NotKept,
    Source,
    Written,
    flags,
    in_any_case,
    items,
    text,
)
from dpgateway_chardev.importers import DRIVER, sriov_auxiliary, sriov_policy
from dpgateway_chardev.importers.rdma_shared import deployed_by_charts
from dpgateway_chardev.importers.sriov_selectors import ID, UIO, FunctionSelector, of_any_driver

_PREFIX, _CHARTS_PREFIX = "intel.com", "nvidia.com"
_EXPECTED = f"a mapping with the key resourceList, or an object of the kind {sriov_policy.KIND}"
_PROC = "in a container, say where it sees the host's /proc: the interface with the default route isn't given"
_NO_PREFIX = (
    f"the prefix is the plugin's default, {_PREFIX}, because this file has no --resource-prefix; the operator's "
    "default is openshift.io"
)
_OF_ALL = {"vendors", "devices", "drivers"}
_OF_NETWORK = {"pfNames", "rootDevices", "linkTypes", "isRdma", "needVhostNet"}
_ASKED = {
    "netDevice": _OF_ALL | _OF_NETWORK | {"pciAddresses", "acpiIndexes", "ddpProfiles", "vdpaType", "pKeys"},
    "accelerator": _OF_ALL | {"pciAddresses"},
    "auxNetDevice": _OF_ALL | _OF_NETWORK | {"auxTypes"},
}
"""The keys of selectors that the plugin reads, by the type of device."""
_TYPES = {"vfio": ("vfio-pci",), "uio": UIO}
"""The drivers of earlier types of devices."""
_BEFORE_SELECTORS = {"rootdevices", "sriovmode", "devicetype"}
_OF_ALL_NODES = re.compile(r"(?i).*config.*|.*\.(json|ya?ml|conf|cfg|txt)")
"""The names of files in a ConfigMap that aren't nodes' names, as which the operator has one for each node."""


@dataclass(frozen=True, slots=True)
class SriovPool:
    """A pool, which is one resource."""

    resourceName: str
    resourcePrefix: str = ""
    deviceType: Literal["netDevice", "accelerator", "auxNetDevice"] = "netDevice"
    excludeTopology: bool = False
    selectors: tuple[FunctionSelector, ...] = field(default=(), metadata={"single": True})
    additionalInfo: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def sriov_network_device_plugin(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    files = list(source.holding("resourceList"))
    pools = [one for file in files for one in ([file] if file.problems else items(in_any_case(file, "resourceList")))]
    pools = [*map(_with_selectors, pools), *_of_charts(source)]
    given = [value.value for words in source.commands() for name, value in flags(words) if name == "resource-prefix"]
    not_kept: list[NotKept] = []
    policies = sriov_policy.pools(source, prefixed=bool(given), not_kept=not_kept)
    converted: list[_SriovResource] = []
    for one in policies:
        pool = SriovPool(one.name, excludeTopology=one.excludeTopology, selectors=(one.selector,))
        prefix = given[0] if given else sriov_policy.PREFIX
        converted.append(_SriovResource(pool, one.written, prefix, one.warnings, one.nodes))
    if pools or not (policies or not_kept):
        entries = Entries.of(pools, SriovPool, source.nothing(_EXPECTED))
        not_kept += entries.not_kept
        prefix, warnings = (given[0], ()) if given else (_PREFIX, (_NO_PREFIX,))
        # where the files in ConfigMaps begin, and their names
        maps = (config_map.part("data").value for config_map in source.objects("ConfigMap"))
        files_of = [(file.place.line, name) for data in maps if isinstance(data, dict) for name, file in data.items()]
        for written, pool in entries.read:
            # a file with a node's name is of that node, another one of all nodes
            name = max((file for file in files_of if file[0] <= written.place.line), default=(0, "config"))[1]
            nodes = {} if _OF_ALL_NODES.fullmatch(name) else {HOST: name}
            converted.append(_SriovResource(pool, written, prefix, warnings, nodes))
    alone = len(converted) == 1
    resources = tuple(made for one in converted if (made := one.resource(alone=alone)) is not None)
    return Imported(resources, (*not_kept, *(lost for one in converted for lost in one.not_kept)))


def _with_selectors(pool: Written) -> Written:
    """A pool of the versions before 3.0, which had devices and a type in place of selectors (2.0.0, README.md)."""
    roots = in_any_case(pool, "rootDevices")
    if roots is None:
        return pool
    mode, kind = in_any_case(pool, "sriovMode"), text(in_any_case(pool, "deviceType"))
    addresses: list[Written] = []
    for one in items(roots):  # an address without a domain is one of domain 0
        domain = "0000:" if text(one).count(":") == 1 else ""
        addresses.append(replace(one, value=f"{domain}{text(one)}"))
    of_devices = "rootDevices" if mode is not None and mode.value is True else "pciAddresses"
    drivers = [Written(driver, pool.place) for driver in _TYPES.get(kind, ())]
    selector = {of_devices: replace(roots, value=addresses), "drivers": Written(drivers, pool.place)}
    rest = {key: value for key, value in pool.value.items() if key.lower() not in _BEFORE_SELECTORS}
    return replace(pool, value=rest | {"selectors": Written(selector, roots.place)})


def _of_charts(source: Source) -> Iterator[Written]:
    """The pools in the values of NVIDIA's network operator, whose selectors are beside their names."""
    for part in deployed_by_charts(source, "sriovDevicePlugin"):
        for pool in items(part.below("resources")):
            selectors = (
                {key: value for key, value in pool.value.items() if key != "name"}
                if isinstance(pool.value, dict)
                else {}
            )
            of_rdma = replace(pool, value=selectors | {"isRdma": Written(True, pool.place)})
            named = {"resourceName": pool.part("name"), "resourcePrefix": Written(_CHARTS_PREFIX, pool.place)}
            yield replace(pool, value=named | {"selectors": of_rdma})


class _SriovResource:
    """A pool, and its settings that are ``not_kept``."""

    def __init__(
        self, pool: SriovPool, written: Written, prefix: str, warnings: tuple[str, ...], nodes: Mapping[str, str]
    ) -> None:
        self.pool, self.written, self._warnings = pool, written, () if pool.resourcePrefix else warnings
        self._nodes = nodes
        self.not_kept: list[NotKept] = []
        self._prefix = pool.resourcePrefix or prefix
        self._name = f"{self._prefix}/{pool.resourceName}"
        self._variable = f"PCIDEVICE_{self._prefix}_{pool.resourceName}".upper().replace(".", "_")
        self._auxiliary = pool.deviceType == "auxNetDevice"

    def resource(self, *, alone: bool) -> ImportedResource | None:
        """The resource; None without a selector that can be kept. Several pools may match one function, so unless this
        one is ``alone``, their resources exclude each other.
        """
        pool = self.pool
        selectors = list(self._selectors())
        if not selectors:
            return None
        kinds: list[dict[str, Any]] = []
        for one in selectors:
            if self._auxiliary:
                kinds += [match | {"nodes": one.nodes(())} for match in sriov_auxiliary.matches(one)]
            else:
                kinds += [match | {"nodes": one.nodes(match["driver"])} for match in one.matches(pool.deviceType)]
        # nodes that all alternatives have in common are written once
        nodes = [kind["nodes"] for kind in kinds]
        if all(one == nodes[0] for one in nodes):
            kinds = [{key: value for key, value in kind.items() if key != "nodes"} for kind in kinds]
        options: dict[str, Any] = {"match": kinds, "id": ID, "nodes": nodes[0]}
        options["env"] = {self._variable: ID} | self._info(selectors)
        if pool.deviceType == "netDevice":
            options["device_info"] = selectors[0].file
            if any(one.file != selectors[0].file for one in selectors):
                why = "they hold for all functions, and these need different ones"
                self._lose("selectors", why, "device-info files")
                options["device_info"] = {}
        if pool.excludeTopology:
            options["numa"] = ""
        warnings = (*self._warnings, *((_PROC,) if pool.deviceType == "netDevice" else ()))
        more = {} if alone else {"pool": "sriov"}
        return ImportedResource(self._name, self.written.place, DRIVER, options, more, warnings, self._nodes)

    def _info(self, selectors: Sequence[FunctionSelector]) -> dict[str, Any]:
        """The variable with JSON: one template for all functions, so it is lost if more differs than the driver."""
        told = [one.info(drivers) for one in selectors for drivers in ([()] if self._auxiliary else one.by_driver)]
        whole = of_any_driver(told)
        if whole is None:
            self._lose(
                "selectors", "it holds for all functions, and these need different ones", f"{self._variable}_INFO"
            )
            return {}
        more = dict(self.pool.additionalInfo)
        extra = {"extra": dict(more.pop("*"))} if "*" in more else {}
        if more:
            why = "only what it says of all functions (*) is kept, because the template is the same for all of them"
            self._lose("additionalInfo", why)
        return {f"{self._variable}_INFO": {ID: whole | extra}}

    def _selectors(self) -> Iterator[FunctionSelector]:
        if not self.pool.selectors:  # {} are selectors, which every function passes
            self._lose("selectors", "without any the plugin offers nothing")
        kind = self.pool.deviceType
        ignored: dict[str, Any] = {
            one.name: one.default for one in fields(FunctionSelector) if one.name not in _ASKED[kind]
        }
        for selector in self.pool.selectors:
            for key in ignored:
                if getattr(selector, key):
                    self._lose("selectors", f"the plugin ignores it for {kind}", key)
            one = replace(selector, **ignored)
            if reasons := list(sriov_auxiliary.unknown(one) if self._auxiliary else one.unknown):
                for key, why in reasons:
                    self._lose("selectors", f"{why}; what it selects is left out", key)
            else:
                yield one

    def _lose(self, key: str, why: str, what: str = "") -> None:
        self.not_kept.append(NotKept(self.written.at(key), what or key, why, self._name))

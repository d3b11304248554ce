"""sriov-network-device-plugin: pools of PCI functions, by its resourceList.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, pkg/types/types.go, pkg/netdevice, pkg/accelerator,
pkg/resources/{deviceSelectors,pool_stub}.go, pkg/infoprovider, pkg/utils/utils.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dpgateway.importing import Imported, InvalidConfiguration, Lost, Problem, Resource, Source, Written, flags, typed
from dpgateway_chardev.importers import DRIVER

_PREFIX = "intel.com"
_EXPECTED = "a mapping with the key resourceList"
_VFIO: list[Any] = ["/dev/vfio/vfio", "/dev/vfio/{attr:iommu_group}"]
_UIO = ("uio_pci_generic", "igb_uio")
_RDMA: list[Any] = [
    "/dev/infiniband/rdma_cm",
    "/dev/infiniband/{each:infiniband_verbs/*}",
    "/dev/infiniband/{each:infiniband_mad/*}",
]
_CLASSES = {"netDevice": "0x02*", "accelerator": "0x12*"}


@dataclass(frozen=True, slots=True)
class Selector:
    """What a function has to be: one of each that is given."""

    vendors: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    pciAddresses: tuple[str, ...] = ()
    acpiIndexes: tuple[str, ...] = ()
    pfNames: tuple[str, ...] = ()
    rootDevices: tuple[str, ...] = ()
    linkTypes: tuple[str, ...] = ()
    ddpProfiles: tuple[str, ...] = ()
    pKeys: tuple[str, ...] = ()
    auxTypes: tuple[str, ...] = ()
    vdpaType: str = ""
    isRdma: bool = False
    needVhostNet: bool = False

    @property
    def unknown(self) -> Iterator[tuple[str, str]]:
        """The keys that can't be kept, and why: without them other functions would be given away, too."""
        why = {
            "linkTypes": "a function's interface isn't there while a pod has it",
            "ddpProfiles": "only devlink knows the profile",
            "pKeys": "they are read from the interface, which isn't there while a pod has it",
            "auxTypes": "auxiliary devices aren't imported",
            "vdpaType": "vDPA devices aren't imported",
        }
        yield from ((key, text) for key, text in why.items() if getattr(self, key))
        for key in ("pfNames", "rootDevices"):
            if any("#" in one for one in getattr(self, key)):
                yield key, "match can't tell the number of a virtual function"

    def matches(self, kind: str) -> Iterator[dict[str, Any]]:
        """The alternatives of ``match``."""
        match: dict[str, Any] = {"subsystem": "pci", "driver": list(self.drivers)}
        if self.pciAddresses:
            match["kernel"] = list(self.pciAddresses)
        attr = {"class": _CLASSES[kind]} | dict(self._attributes(kind))
        for name in self.pfNames:  # only virtual functions have one
            yield match | {"attr": attr | {f"physfn/net/{name}": {"present": True}}}
        if not self.pfNames:
            yield match | {"attr": attr}

    def _attributes(self, kind: str) -> Iterator[tuple[str, Any]]:
        if kind == "netDevice":
            yield "sriov_numvfs", {"glob": "0", "or_absent": True}
        for key, values in (("vendor", self.vendors), ("device", self.devices)):
            if values:
                yield key, [f"0x{value.lower().removeprefix('0x')}" for value in values]
        if self.acpiIndexes:
            yield "acpi_index", list(self.acpiIndexes)
        if self.rootDevices:
            yield "physfn", list(self.rootDevices)
        if self.isRdma:
            yield "infiniband/*", {"present": True}

    @property
    def nodes(self) -> list[Any]:
        nodes = list(_VFIO) if "vfio-pci" in self.drivers else []
        nodes += ["/dev/{entry:uio/*}"] if set(self.drivers) & set(_UIO) else []
        nodes += _RDMA if self.isRdma else []
        return nodes + (["/dev/vhost-net", "/dev/net/tun"] if self.needVhostNet else [])


@dataclass(frozen=True, slots=True)
class Pool:
    """A resource."""

    resourceName: str
    resourcePrefix: str = ""
    deviceType: Literal["netDevice", "accelerator", "auxNetDevice"] = "netDevice"
    excludeTopology: bool = False
    selectors: tuple[Selector, ...] = field(default=(), metadata={"single": True})
    additionalInfo: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configured:
    """Its file."""

    resourceList: tuple[Pool, ...]


def sriov_network_device_plugin(source: Source) -> Imported:
    """What is written instead of its configuration. Raises InvalidConfiguration."""
    files = [one for one in source.configs("resourceList") if one.below("resourceList")]
    if not files:
        raise source.nothing(_EXPECTED)
    problems: list[Problem] = []
    pools = [(file, whole) for file in files if (whole := typed(file, Configured, problems)) is not None]
    if problems:
        raise InvalidConfiguration(problems)
    given = [value.value for words in source.commands() for name, value in flags(words) if name == "resource-prefix"]
    prefix = given[0] if given else _PREFIX
    converted = [
        _Converted(pool, file.part("resourceList", number), prefix)
        for file, whole in pools
        for number, pool in enumerate(whole.resourceList)
    ]
    resources = tuple(
        resource for one in converted if (resource := one.resource(alone=len(converted) == 1)) is not None
    )
    always = tuple(_always(converted)) if resources else ()
    return Imported(resources, (*always, *(lost for one in converted for lost in one.lost)))


def _always(converted: Sequence[_Converted]) -> Iterator[Lost]:
    place = converted[0].written.place
    yield Lost(place, "PCIDEVICE_..._INFO", "a variable with JSON can't be made; the one with the addresses is kept")
    yield Lost(place, "the device-info files", "for Multus and CNI plugins that read them, nothing writes them")
    if any(one.pool.deviceType == "netDevice" for one in converted):
        why = "match can't tell it, so see to it that no selector takes it"
        yield Lost(place, "that the interface with the default route is never given", why)


class _Converted:
    """A pool, and what of it is ``lost``."""

    def __init__(self, pool: Pool, written: Written, prefix: str) -> None:
        self.pool, self.written = pool, written
        self.lost: list[Lost] = []
        self._prefix = pool.resourcePrefix or prefix
        self._name = f"{self._prefix}/{pool.resourceName}"

    def resource(self, *, alone: bool) -> Resource | None:
        """None if there is nothing that can be matched. What several pools match, only one can give at a time."""
        pool = self.pool
        if pool.excludeTopology:
            self._lose("excludeTopology", "NUMA nodes are always told")
        if pool.additionalInfo:
            self._lose("additionalInfo", "it is a part of PCIDEVICE_..._INFO")
        selectors = list(self._selectors())
        if not selectors:
            return None
        nodes = list(dict.fromkeys(map(str, selectors[0].nodes)))
        if any(one.nodes != selectors[0].nodes for one in selectors):
            self._lose("selectors", "nodes hold for all functions; these selectors need different ones")
            return None
        return Resource(
            self._name,
            self.written.place,
            DRIVER,
            {
                "match": [match for one in selectors for match in one.matches(pool.deviceType)],
                "id": "{kernel}",
                "nodes": nodes,
                "env": {self._variable: "{kernel}"},
            },
            {} if alone else {"pool": "sriov"},
        )

    def _selectors(self) -> Iterator[Selector]:
        if self.pool.deviceType == "auxNetDevice":
            self._lose("deviceType", "auxiliary devices aren't imported")
            return
        for one in self.pool.selectors or (Selector(),):
            if reasons := list(one.unknown):
                for key, why in reasons:
                    self._lose("selectors", f"{why}; what it selects is left out", key)
            elif len({_kind(driver) for driver in one.drivers}) > 1 or (not one.drivers):
                why = "the nodes depend on the driver, and here there may be several; what it selects is left out"
                self._lose("selectors", why, "drivers")
            else:
                yield one

    @property
    def _variable(self) -> str:
        return f"PCIDEVICE_{self._prefix}_{self.pool.resourceName}".upper().replace(".", "_")

    def _lose(self, key: str, why: str, what: str = "") -> None:
        self.lost.append(Lost(self.written.at(key), what or key, why, self._name))


def _kind(driver: str) -> str:
    return "uio" if driver in _UIO else driver if driver == "vfio-pci" else "kernel"

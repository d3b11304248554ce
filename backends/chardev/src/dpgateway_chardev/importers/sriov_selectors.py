"""Selectors of sriov-network-device-plugin, as alternatives of ``match``, and the nodes and information they give.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, pkg/resources/deviceSelectors.go, pkg/infoprovider,
pkg/netdevice/netResourcePool.go, pkg/utils/utils.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

ID = "{kernel}"
_GROUP = "/dev/vfio/{attr:iommu_group}"
_VFIO: list[Any] = [
    "/dev/vfio/vfio",
    {"host_path": [_GROUP, "/dev/vfio/noiommu-{attr:iommu_group}"], "container_path": _GROUP},
]
_UIO_NODE, _VDPA_NODE = "/dev/{entry:uio/*}", "/dev/{entry:vdpa*/vhost-vdpa-*}"
UIO = ("uio_pci_generic", "igb_uio")
KERNEL = {"none_of": ["vfio-pci", *UIO]}
"""A test of drivers: those of the kernel, with which a function is an interface."""
HAS_RDMA = "infiniband_verbs/*"
"""Not infiniband/*, which is absent while a pod has the RDMA device to itself: ib_class is tied to network namespaces
(drivers/infiniband/core/device.c), uverbs_class isn't."""
_RDMA_DEVICE = f"{{attr:{HAS_RDMA}/ibdev}}"
_OF_DRIVER = {
    # the expression finds nothing, which is no text, unless it is this driver: then an empty group
    "vfio": {"mount": "/dev/vfio/vfio{regex:{driver}#^vfio-pci()$}", "dev-mount": _GROUP},
    "uio": {"mount": _UIO_NODE},
}
"""What PCIDEVICE_..._INFO says of functions with these drivers, and can't be filled for others."""
_RDMA: list[Any] = [
    "/dev/infiniband/rdma_cm",
    "/dev/infiniband/{each:infiniband_verbs/*}",
    "/dev/infiniband/{each:infiniband_mad/*}",
]
_RDMA_INFO = {
    "uverbs": "/dev/infiniband/{entry:infiniband_verbs/*}",
    "umad?": "/dev/infiniband/{entry:infiniband_mad/umad*}",
    "issm?": "/dev/infiniband/{entry:infiniband_mad/issm*}",
    "rdma_cm": "/dev/infiniband/rdma_cm",
    "rdma_dev": _RDMA_DEVICE,
}
_VERSION = "1.1.0"  # of the device-info specification
HEXADECIMAL = re.compile("(0x)?[0-9A-Fa-f]{1,4}")
_FORMS = (
    (("vendors", "devices"), HEXADECIMAL, "hexadecimal digits"),
    (
        ("pciAddresses", "rootDevices"),
        re.compile(r"([0-9A-Fa-f]{4,}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7](#.*)?"),
        "PCI addresses such as 0000:3b:00.0",
    ),
)
_FUNCTIONS = re.compile(r"[^#]+(#\d+(-\d+)?(,\d+(-\d+)?)*)?")
LINKS = {"ether": "1", "infiniband": "32"}  # include/uapi/linux/if_arp.h
_VDPA = {"vhost": "vhost_vdpa", "virtio": "virtio_vdpa"}
_DEFAULT = "{entry:net/*}\t00000000\t*\t*\t*\t*\t*\t00000000"
"""The default route in /proc/net/route (net/ipv4/fib_trie.c, fib_route_seq_show): destination and mask are 0.0.0.0.
Only the mask tells it from 0.0.0.0/1, which VPNs add."""
_ROUTES = f"/proc/1/net/route#{_DEFAULT}", f"/proc/net/route#{_DEFAULT}"
_CLASSES = {"netDevice": "0x02*", "accelerator": "0x12*"}


@dataclass(frozen=True, slots=True)
class FunctionSelector:
    """Conditions on a function: of each list that isn't empty, one entry has to match."""

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
        """The keys that can't be converted, with reasons. Without such a key, match would take more functions."""
        why = {
            "ddpProfiles": "the plugin asks devlink, or the program ddptool; sysfs doesn't have the profile",
            "pKeys": "they are in a directory (infiniband) that isn't there while a pod has the interface to itself",
        }
        yield from ((key, text) for key, text in why.items() if getattr(self, key))
        if self.vdpaType not in {"", *_VDPA}:
            yield "vdpaType", f"only {' and '.join(_VDPA)} are known"
        yield from self.wrong_values

    @property
    def wrong_values(self) -> Iterator[tuple[str, str]]:
        for keys, form, expected in _FORMS:
            wrong = ((key, text) for key in keys for text in getattr(self, key) if not form.fullmatch(text))
            yield from ((key, f"expected {expected}, found {text or 'nothing'}") for key, text in islice(wrong, 1))
        if set(self.linkTypes) - LINKS.keys():
            yield "linkTypes", f"only {' and '.join(LINKS)} are known"
        for key in ("pfNames", "rootDevices"):
            if not all(_FUNCTIONS.fullmatch(one) for one in getattr(self, key)):
                yield key, "expected numbers of functions after #, such as 0-3,5"

    def matches(self, kind: str) -> Iterator[dict[str, Any]]:
        """The alternatives of ``match``."""
        common: dict[str, Any] = {"class": _CLASSES[kind]}
        if kind == "netDevice":
            common["sriov_numvfs"] = {"glob": "0", "or_absent": True}
        common |= dict(self.ids)
        if self.acpiIndexes:
            common["acpi_index"] = list(self.acpiIndexes)
        if self.isRdma:
            common[HAS_RDMA] = {"present": True}
        if self.vdpaType:
            common["vdpa*/driver"] = _VDPA[self.vdpaType]
        for drivers in self.by_driver:
            match: dict[str, Any] = {"subsystem": "pci", "driver": drivers}
            if self.pciAddresses:
                match["kernel"] = list(self.pciAddresses)
            if kind == "netDevice":
                match["file"] = {route: {"present": False} for route in _ROUTES}
            for attr, vf in self._places():
                yield match | {"attr": common | attr} | ({"vf": vf} if vf else {})

    @property
    def by_driver(self) -> list[Any]:
        """The drivers, grouped by the nodes that their functions need; tests of all drivers if none is named."""
        if not self.drivers:
            return [KERNEL] if self.isRdma or self.vdpaType else [["vfio-pci"], list(UIO), KERNEL]
        alike: dict[str, list[str]] = {}
        for driver in self.drivers:
            kind = "uio" if driver in UIO else driver if driver == "vfio-pci" else "kernel"
            alike.setdefault(kind, []).append(driver)
        return list(alike.values())

    def _places(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """Tests through the physical function, each with a test of the virtual function's index, or None."""
        names = [({f"physfn/net/{name}": {"present": True}}, vf) for name, vf in meant(self.pfNames)]
        roots = [({"physfn": name}, vf) for name, vf in meant(self.rootDevices)]
        links = {"exact": [LINKS[one] for one in self.linkTypes]}
        of_pf: dict[str, Any] = {"physfn/net/*/type": links} if self.linkTypes else {}
        for (attr, vf), (more, other) in product(names or [({}, None)], roots or [({}, None)]):
            yield attr | more | of_pf, both(vf, other)
        if self.linkTypes and not names and not roots:
            yield {"physfn": {"present": False}, "net/*/type": links}, None

    @property
    def ids(self) -> Iterator[tuple[str, list[str]]]:
        """Tests of vendor and device."""
        for key, values in (("vendor", self.vendors), ("device", self.devices)):
            if values:
                yield key, [f"0x{value.lower().removeprefix('0x')}" for value in values]

    def nodes(self, drivers: Any) -> list[Any]:  # noqa: ANN401  one of ``by_driver``
        """The nodes of functions with such a driver."""
        nodes = list(_VFIO) if "vfio-pci" in drivers else []
        nodes += [_UIO_NODE] if set(drivers) & set(UIO) else []
        nodes += _RDMA if self.isRdma else []
        nodes += ["/dev/{each:vdpa*/vhost-vdpa-*}"] if self.vdpaType == "vhost" else []
        return nodes + (["/dev/vhost-net", "/dev/net/tun"] if self.needVhostNet else [])

    def info(self, drivers: Any) -> dict[str, Any]:  # noqa: ANN401  one of ``by_driver``
        """The template of PCIDEVICE_..._INFO for a function."""
        info: dict[str, Any] = {"generic": {"deviceID": ID}}
        if "vfio-pci" in drivers:
            info["vfio"] = {"mount": "/dev/vfio/vfio", "dev-mount": _GROUP}
        if set(drivers) & set(UIO):
            info["uio"] = {"mount": _UIO_NODE}
        if self.isRdma:
            info["rdma"] = _RDMA_INFO
        if self.vdpaType == "vhost":
            info["vdpa"] = {"mount": _VDPA_NODE}
        if self.needVhostNet:
            info["vhost"] = {"net-mount": "/dev/vhost-net", "tun-mount": "/dev/net/tun"}
        return info

    @property
    def file(self) -> dict[str, Any]:
        """The template of the device-info file."""
        if not self.vdpaType:
            rdma = {"rdma-device": _RDMA_DEVICE} if self.isRdma else {}
            return {"type": "pci", "version": _VERSION, "pci": {"pci-address": ID} | rdma}
        path = {"path": _VDPA_NODE} if self.vdpaType == "vhost" else {}
        vdpa = {"parent-device": "{entry:vdpa*}", "driver": self.vdpaType} | path | {"pci-address": ID}
        return {"type": "vdpa", "version": _VERSION, "vdpa": vdpa}


def of_any_driver(infos: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """One template of what several say, with keys that only functions of some drivers have; None if there is none."""
    whole: dict[str, Any] = {}
    for key in dict.fromkeys(key for one in infos for key in one):
        if all(one.get(key) == infos[0].get(key) for one in infos):
            whole[key] = infos[0][key]
        elif key in _OF_DRIVER:
            whole[f"{key}?"] = _OF_DRIVER[key]
        else:
            return None
    return whole


def both(one: Any, other: Any) -> Any:  # noqa: ANN401
    """The intersection of two ranges of virtual functions. If it is empty, the test matches no function."""
    if one is None or other is None:
        return one or other
    first, last = max(one["at_least"], other["at_least"]), min(one["at_most"], other["at_most"])
    return {"at_least": first, "at_most": last} if first <= last else {"present": False}


def meant(texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The name and a test for each range of virtual functions: two for ``name#0-3,5``; without ranges None."""
    for text in texts:
        name, _, ranges = text.partition("#")
        for one in ranges.split(",") if ranges else ():
            first, _, last = one.partition("-")
            yield name, {"at_least": int(first), "at_most": int(last or first)}
        if not ranges:
            yield name, None

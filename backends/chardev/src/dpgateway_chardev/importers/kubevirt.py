"""KubeVirt: the permitted host devices of a KubeVirt object or a HyperConverged object, which virt-handler serves.

Source: kubevirt/kubevirt, pkg/virt-handler/device-manager/{pci,mediated,usb}_device.go and common.go;
kubevirt/hyperconverged-cluster-operator, api/v1/hyperconverged_types.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dpgateway import refuse
from dpgateway.importing import (
    Entries,
    Imported,
    ImportedResource,
    InvalidConfiguration,
    NotKept,
    Source,
    Written,
    items,
    refused,
)
from dpgateway_chardev.importers import DRIVER, RUNNING

_ID = re.compile("[0-9A-Fa-f]{1,4}")
_SAY_SO = "in this object say externalResourceProvider: true for it, else virt-handler goes on serving it"
_EXTERNAL = (
    "KubeVirt doesn't serve it, because of externalResourceProvider: true; another plugin does, under other ids: "
    "remove that plugin, or this resource"
)
_NO_MODEL = (
    "it isn't one model, and with externalResourceProvider: true another plugin decides what it offers: import that "
    "one's configuration"
)
_NO_MATCH = "match takes one of each kind, or a number of one kind"
_IDS = f"there they are new at each start of virt-handler; {RUNNING}"
_EXPECTED = "an object of the kind KubeVirt or HyperConverged with permittedHostDevices"
_LISTS = {
    "pci": ("pciHostDevices",),
    "mediated": ("mediatedDevices",),
    "usb": ("usb", "usbHostDevices"),
}
"""The keys of KubeVirt, and of HyperConverged if they differ."""
_GROUP = "{attr:iommu_group}"
_VFIO: list[Any] = ["/dev/vfio/vfio", f"/dev/vfio/{_GROUP}"]


@dataclass(frozen=True, slots=True)
class Pci:
    """PCI functions of one model."""

    resourceName: str
    pciVendorSelector: str = ""
    pciDeviceSelector: str = ""
    """HyperConverged's name for it."""
    externalResourceProvider: bool = False
    disabled: bool = False

    def __post_init__(self) -> None:
        key = "pciDeviceSelector" if self.pciDeviceSelector else "pciVendorSelector"
        if not self.is_one_model and not self.externalResourceProvider:
            raise ValueError(f"{key}: expected VENDOR:DEVICE, 10de:1eb8, found {self.model!r}")

    @property
    def model(self) -> str:
        return (self.pciVendorSelector or self.pciDeviceSelector).strip()

    @property
    def is_one_model(self) -> bool:
        return re.fullmatch("[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}", self.model) is not None

    @property
    def matches(self) -> Iterator[dict[str, Any]]:
        name = {"PCI_ID": self.model.upper()}
        yield {"subsystem": "pci", "driver": "vfio-pci", "env": name}
        if self.model.lower().startswith("10de:"):  # NVIDIA's driver makes virtual functions of a GPU
            of_gpu = {"sriov_totalvfs": {"present": False}, "nvidia/current_vgpu_type": {"none_of": "0"}}
            yield {"subsystem": "pci", "driver": "nvidia", "env": name, "attr": of_gpu}


@dataclass(frozen=True, slots=True)
class Mediated:
    """Mediated devices of one type."""

    mdevNameSelector: str
    resourceName: str
    externalResourceProvider: bool = False
    disabled: bool = False

    @property
    def model(self) -> str:
        return self.mdevNameSelector

    @property
    def matches(self) -> Iterator[dict[str, Any]]:
        """The name of the type, with a _ for each space; without a name, its directory's name."""
        name = {"regex": re.escape(self.mdevNameSelector).replace("_", "[ _]")}
        yield {"subsystem": "mdev", "attr": {"mdev_type/name": name}}
        own = {"exact": self.mdevNameSelector}
        yield {"subsystem": "mdev", "attr": {"mdev_type/name": {"present": False}, "mdev_type": own}}


@dataclass(frozen=True, slots=True)
class UsbSelector:
    """The model of one USB device of a resource's device."""

    vendor: str
    product: str

    def __post_init__(self) -> None:
        refuse(
            f"{key}: expected at most four hexadecimal digits, found {text!r}"
            for key, text in (("vendor", self.vendor), ("product", self.product))
            if not _ID.fullmatch(text)
        )


@dataclass(frozen=True, slots=True)
class UsbHostDevice:
    """A resource whose devices have a USB device for each selector."""

    resourceName: str
    selectors: tuple[UsbSelector, ...] = ()
    externalResourceProvider: bool = False
    disabled: bool = False


T = TypeVar("T", Pci, Mediated, UsbHostDevice)
M = TypeVar("M", Pci, Mediated)


def kubevirt(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    # the mappings with the lists, in an object or in a patch of one
    holding = (one.below("permittedHostDevices") for one in source.holding("permittedHostDevices"))
    found = [one for one in holding if one is not None]
    found += source.holding(*(key for keys in _LISTS.values() for key in keys if key != "usb"))
    permitted = list({(one.place.line, one.place.column): one for one in found}.values())
    problems: list[InvalidConfiguration] = []
    pci = _entries(source, permitted, "pci", Pci, problems)
    mediated = _entries(source, permitted, "mediated", Mediated, problems)
    usb = _entries(source, permitted, "usb", UsbHostDevice, problems)
    not_kept = [lost for one in (pci, mediated, usb) for lost in one.not_kept]
    for at, one in pci.read:
        if not one.is_one_model:
            not_kept.append(NotKept(at.place, f"the selector {one.model}", _NO_MODEL, one.resourceName))
    pci = _last(replace(pci, read=tuple((at, one) for at, one in pci.read if one.is_one_model)), not_kept)
    mediated = _last(mediated, not_kept)
    if problems and not (pci.read or mediated.read or usb.read or not_kept):
        raise problems[0]
    not_kept += [refused(problem) for one in problems for problem in one.problems]
    resources = [*_functions("PCI_RESOURCE", pci.read), *_functions("MDEV_PCI_RESOURCE", mediated.read)]
    for at, stick in usb.read:
        if (resource := _usb(stick, at)) is None:
            not_kept.append(NotKept(at.place, "the selectors", _NO_MATCH, stick.resourceName))
        else:
            resources.append(resource)
            not_kept.append(NotKept(at.place, "the ids", _IDS, stick.resourceName))
    return Imported(tuple(resources), tuple(not_kept))


def _entries(
    source: Source, permitted: Sequence[Written], what: str, kind: type[T], problems: list[InvalidConfiguration]
) -> Entries[T]:
    """The entries of a list that are served; ``problems`` gets the error if all of them are wrong."""
    written = [entry for one in permitted for key in _LISTS[what] for entry in items(one.below(key))]
    try:
        entries = Entries.of(written, kind, source.nothing(_EXPECTED))
    except InvalidConfiguration as error:
        problems.extend([error] if written or not any(one.value for one in permitted) else [])
        return Entries((), ())
    return replace(entries, read=tuple(one for one in entries.read if not one[1].disabled))


def _last(entries: Entries[M], not_kept: list[NotKept]) -> Entries[M]:
    """The effective entries: the last one of each model, as in virt-handler's maps."""
    served = [(at, one) for at, one in entries.read if not one.externalResourceProvider]
    last = {one.model.upper().replace(" ", "_"): (at, one.resourceName) for at, one in served}
    without = []
    for at, one in served:
        having, name = last[one.model.upper().replace(" ", "_")]
        if name != one.resourceName:
            without.append(at)
            why = f"KubeVirt gives it to {name}, which line {having.place.line} says later"
            not_kept.append(NotKept(at.place, f"the selector {one.model}", why, one.resourceName))
    return replace(entries, read=tuple((at, one) for at, one in entries.read if at not in without))


def _functions(prefix: str, devices: Sequence[tuple[Written, Any]]) -> Iterator[ImportedResource]:
    """A resource for each name, which several selectors may share."""
    cdev = {"host_path": "/dev/vfio/devices/{each:vfio-dev/*}", "optional": True}
    for name in dict.fromkeys(one.resourceName for _, one in devices):
        alike = [(at, one) for at, one in devices if one.resourceName == name]
        options = {
            "match": [match for _, one in alike for match in one.matches],
            "group": _GROUP,
            "id": "{group}",
            "nodes": [*_VFIO, cdev] if prefix == "PCI_RESOURCE" else _VFIO,
            "permissions": "mrw",
            "env": {_variable(prefix, name): "{kernel}"},
        }
        external = all(one.externalResourceProvider for _, one in alike)
        yield ImportedResource(name, alike[0][0].place, DRIVER, options, warnings=(_EXTERNAL if external else _SAY_SO,))


def _variable(prefix: str, name: str) -> str:
    return f"{prefix}_{name.upper().replace('/', '_').replace('.', '_')}"


def _usb(usb: UsbHostDevice, at: Written) -> ImportedResource | None:
    kinds = set(usb.selectors)
    if not kinds or (1 < len(kinds) < len(usb.selectors)):
        return None
    models = [(f"{int(one.vendor, 16):04x}", f"{int(one.product, 16):04x}") for one in dict.fromkeys(usb.selectors)]
    matches = [{"subsystem": "usb", "attr": {"idVendor": one, "idProduct": other}} for one, other in models]
    options: dict[str, Any] = {"match": matches}
    if len(usb.selectors) > 1:
        options["group"] = {"each": True} if len(kinds) > 1 else {"size": len(usb.selectors)}
    options["permissions"] = "mrw"
    options["env"] = {_variable("USB_RESOURCE", usb.resourceName): "{attr:busnum}:{attr:devnum}"}
    # the user of qemu in virt-launcher (pkg/util/util.go, NonRootUID)
    options["access"] = [{"host_path": "{devnode}", "owner": 107, "group": 107}]
    warning = _EXTERNAL if usb.externalResourceProvider else _SAY_SO
    return ImportedResource(usb.resourceName, at.place, DRIVER, options, warnings=(warning,))

"""KubeVirt: the permitted host devices of a KubeVirt object, which virt-handler serves as a device plugin.

Source: kubevirt/kubevirt, pkg/virt-handler/device-manager/{pci,mediated,usb}_device.go and common.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpgateway import refuse
from dpgateway.importing import (
    Imported,
    ImportedResource,
    InvalidConfiguration,
    NotKept,
    Problem,
    Source,
    Written,
    typed,
)
from dpgateway_chardev.importers import DRIVER, RUNNING

_ID = re.compile("[0-9A-Fa-f]{1,4}")
_EXTERNAL = "In the KubeVirt object say externalResourceProvider: true for it, else virt-handler goes on serving it."
_GROUP = "{attr:iommu_group}"
_VFIO: list[Any] = ["/dev/vfio/vfio", f"/dev/vfio/{_GROUP}"]


@dataclass(frozen=True, slots=True)
class Pci:
    """PCI functions of one model."""

    pciVendorSelector: str
    resourceName: str
    externalResourceProvider: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}", self.pciVendorSelector):
            raise ValueError(f"pciVendorSelector: expected VENDOR:DEVICE, 10de:1eb8, found {self.pciVendorSelector!r}")

    @property
    def matches(self) -> Iterator[dict[str, Any]]:
        name = {"PCI_ID": self.pciVendorSelector.upper()}
        yield {"subsystem": "pci", "driver": "vfio-pci", "env": name}
        if self.pciVendorSelector.lower().startswith("10de:"):  # NVIDIA's driver makes virtual functions of a GPU
            of_gpu = {"sriov_totalvfs": {"present": False}, "nvidia/current_vgpu_type": {"none_of": "0"}}
            yield {"subsystem": "pci", "driver": "nvidia", "env": name, "attr": of_gpu}


@dataclass(frozen=True, slots=True)
class Mediated:
    """Mediated devices of one type."""

    mdevNameSelector: str
    resourceName: str
    externalResourceProvider: bool = False

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

    @property
    def match(self) -> dict[str, Any]:
        return {
            "subsystem": "usb",
            "attr": {"idVendor": f"{int(self.vendor, 16):04x}", "idProduct": f"{int(self.product, 16):04x}"},
        }


@dataclass(frozen=True, slots=True)
class UsbHostDevice:
    """A resource whose devices have a USB device for each selector."""

    resourceName: str
    selectors: tuple[UsbSelector, ...] = ()
    externalResourceProvider: bool = False


@dataclass(frozen=True, slots=True)
class Permitted:
    """All permitted host devices."""

    pciHostDevices: tuple[Pci, ...] = ()
    mediatedDevices: tuple[Mediated, ...] = ()
    usb: tuple[UsbHostDevice, ...] = ()


def kubevirt(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    whole = _permitted(source)
    problems: list[Problem] = []
    permitted = typed(whole, Permitted, problems)
    if permitted is None:
        raise InvalidConfiguration(problems)
    pci = _functions(whole, "pciHostDevices", permitted.pciHostDevices)
    mediated = _functions(whole, "mediatedDevices", permitted.mediatedDevices)
    usb = [(_usb(one, at), at) for number, one in enumerate(permitted.usb) if (at := whole.part("usb", number))]
    resources = [*pci, *mediated, *(resource for resource, _ in usb if resource is not None)]
    return Imported(tuple(resources), tuple(_not_kept(permitted.usb, whole)))


def _permitted(source: Source) -> Written:
    for one in source.objects("KubeVirt"):
        part = one.part("spec", "configuration", "permittedHostDevices")
        if part.value is not None:
            return part
    raise source.nothing("an object of the kind KubeVirt with spec.configuration.permittedHostDevices")


def _functions(whole: Written, key: str, devices: Sequence[Pci | Mediated]) -> Iterator[ImportedResource]:
    """A resource for each name, which several selectors may share."""
    prefix = "PCI_RESOURCE" if key == "pciHostDevices" else "MDEV_PCI_RESOURCE"
    cdev = {"host_path": "/dev/vfio/devices/{each:vfio-dev/*}", "optional": True}
    for name in dict.fromkeys(one.resourceName for one in devices):
        alike = [one for one in devices if one.resourceName == name]
        options = {
            "match": [match for one in alike for match in one.matches],
            "group": _GROUP,
            "id": "{group}",
            "nodes": [*_VFIO, cdev] if key == "pciHostDevices" else _VFIO,
            "permissions": "mrw",
            "env": {_variable(prefix, name): "{kernel}"},
        }
        comments = () if all(one.externalResourceProvider for one in alike) else (_EXTERNAL,)
        yield ImportedResource(name, whole.at(key, devices.index(alike[0])), DRIVER, options, comments=comments)


def _variable(prefix: str, name: str) -> str:
    return f"{prefix}_{name.upper().replace('/', '_').replace('.', '_')}"


def _usb(usb: UsbHostDevice, at: Written) -> ImportedResource | None:
    kinds = set(usb.selectors)
    if not kinds or (1 < len(kinds) < len(usb.selectors)):
        return None
    options: dict[str, Any] = {"match": [one.match for one in dict.fromkeys(usb.selectors)]}
    if len(usb.selectors) > 1:
        options["group"] = {"each": True} if len(kinds) > 1 else {"size": len(usb.selectors)}
    options["permissions"] = "mrw"
    options["env"] = {_variable("USB_RESOURCE", usb.resourceName): "{attr:busnum}:{attr:devnum}"}
    # the user of qemu in virt-launcher (pkg/util/util.go, NonRootUID)
    options["access"] = [{"host_path": "{devnode}", "owner": 107, "group": 107}]
    comments = () if usb.externalResourceProvider else (_EXTERNAL,)
    return ImportedResource(usb.resourceName, at.place, DRIVER, options, comments=comments)


def _not_kept(usb: Sequence[UsbHostDevice], whole: Written) -> Iterator[NotKept]:
    for number, one in enumerate(usb):
        place, name = whole.at("usb", number), one.resourceName
        if _usb(one, whole.part("usb", number)) is None:
            why = "match takes one of each kind, or a number of one kind"
            yield NotKept(place, "the selectors", why, name)
            continue
        yield NotKept(place, "the ids", f"there they are new at each start of virt-handler; {RUNNING}", name)

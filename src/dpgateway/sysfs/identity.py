"""An object's place in the machine, and its stable names.

``/dev/ttyUSB0``, ``input7`` and USB's devnum depend on the order of enumeration. A serial number belongs to the device,
a bus address to a place in the machine; nothing else in sysfs is stable. A place also has a NUMA node, and a PCI
address can be written as one number.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from dpgateway.sysfs.nodes import DevNode
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.values import NoValue, Value, as_number

LASTING = frozenset({"acpi", "amba", "ap", "ccw", "mdev", "pci", "platform", "pnp", "serial-base", "usb", "vmbus"})
"""Buses that name objects by place, or by a number of their own. Not among them: auxiliary, hid, i2c, scsi, usb-serial,
virtio and others that number objects in order of appearance."""


_WITHOUT = LASTING - {"usb"}
"""Buses whose objects are never inside a USB device, so that the search for a serial number ends there."""


def place(look: Look, thing: Object) -> Object | None:
    """The object itself or its nearest ancestor on a bus in ``LASTING``; None if there is none."""
    return next((one for one in thing.line if look.subsystem(one) in LASTING), None)


def serial(look: Look, thing: Object) -> str | None:
    """``<vendor>:<product>:<serial number>`` of the object's USB device, followed by the interface (``:1.0``) if the
    object is in one; None without a USB device or a serial number.
    """
    interface = ""
    for ancestor in thing.line:
        if look.subsystem(ancestor) in _WITHOUT:
            return None
        # on the way up the interface comes first, then its device, which has the serial number
        if isinstance(vendor := look.value(ancestor, "idVendor"), str):
            product, number = look.value(ancestor, "idProduct"), look.value(ancestor, "serial")
            if not isinstance(number, str) or not number.strip() or not isinstance(product, str):
                return None
            return f"{vendor}:{product}:{number.strip()}{interface}"
        if not interface and look.subsystem(ancestor) == "usb":
            interface = ":" + ancestor.kernel.partition(":")[2]
    return None


def identity(look: Look, thing: Object) -> tuple[str, ...]:
    """An object's names, best first: serial number, bus address; its own name if it has neither."""
    on = place(look, thing)
    names = (serial(look, thing), None if on is None else on.kernel)
    return tuple(name for name in names if name) or (thing.kernel,)


_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


def pci_number(address: str) -> int | None:
    """A PCI function's address as one number: domain, bus, device and function (include/linux/pci.h, PCI_DEVID, with
    the domain above it). ``address``: 0000:b3:00.1, or such a number, optionally after a domain and a colon. None for
    anything else.
    """
    if found := _ADDRESS.fullmatch(address):
        domain, bus, device, function = (int(part, 16) for part in found.groups())
        return domain << 16 | bus << 8 | device << 3 | function
    above_text, _, text = address.rpartition(":")
    above, below = as_number(above_text or "0"), as_number(text)
    return None if above is None or below is None or above < 0 or below < 0 else (above << 16) + below


def virtual_function(look: Look, thing: Object) -> Value:
    """The index of a PCI virtual function within its physical function: the number in the name of the link to it
    (Documentation/ABI/testing/sysfs-bus-pci, virtfnN).
    """
    for entry in look.entries(thing, "physfn/virtfn*"):
        if look.value(thing, entry) == thing.kernel:
            return entry.rpartition("virtfn")[2]
    return NoValue.missing()


def numa_of(look: Look, thing: Object) -> tuple[int, ...]:
    """The NUMA node of the nearest ancestor of an object that has one, in one look: see ``numa_nodes``."""
    for ancestor in thing.line:
        if isinstance(number := look.value(ancestor, "numa_node"), str):
            node = as_number(number) if number.isdecimal() else None  # -1: it is unknown
            return () if node is None else (node,)
    return ()


def numa_nodes(node: DevNode, sysfs: str = "/sys") -> tuple[int, ...]:
    """The NUMA node of the nearest ancestor of a device node's device that has one; empty if there is none, and for -1,
    which means unknown.

    Source: Documentation/ABI/stable/sysfs-devices, numa_node; Documentation/ABI/testing/sysfs-dev.
    """
    link = Path(sysfs, "dev", node.type, f"{node.major}:{node.minor}")
    try:
        return _nearest(sysfs, str(link.readlink()), node.type)
    except (OSError, ValueError):
        return ()


@lru_cache(maxsize=4096)
def _nearest(sysfs: str, link: str, node_type: str) -> tuple[int, ...]:
    """Cached, because a path in sysfs is a fixed place in the machine, and the walk up tries a dozen missing files."""
    directory = Path(sysfs, "dev", node_type, link).resolve(strict=True)
    for ancestor in (directory, *directory.parents):
        if ancestor.name == "devices":
            break
        try:
            number = int((ancestor / "numa_node").read_text())
        except FileNotFoundError:
            continue
        return (number,) if number >= 0 else ()
    return ()

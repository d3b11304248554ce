"""Names that an object keeps for ever: made of what it is, or of where it is plugged in, never of an enumeration.

``/dev/ttyUSB0``, ``input7`` and USB's devnum are whatever came first. A serial number is the device's own; a bus
address is a place in the machine. Nothing else in sysfs lasts.
"""

from __future__ import annotations

from dpgateway.sysfs.objects import Look, Object

LASTING = frozenset({"acpi", "amba", "ap", "ccw", "mdev", "pci", "platform", "pnp", "serial-base", "usb", "vmbus"})
"""Buses whose objects are named by their place, or by a number of their own. Not among them: auxiliary, hid, i2c, scsi,
usb-serial, virtio and others that count."""


_WITHOUT = LASTING - {"usb"}
"""Nothing on these buses is in a USB device."""


def place(look: Look, thing: Object) -> Object | None:
    """The object itself or the nearest above it on a bus whose names last; None, if there is none."""
    return next((one for one in thing.line if look.subsystem(one) in LASTING), None)


def address(look: Look, thing: Object) -> str | None:
    """The name of that object."""
    on = place(look, thing)
    return None if on is None else on.kernel


def serial(look: Look, thing: Object) -> str | None:
    """``<vendor>:<product>:<serial number>`` of the USB device that this is or is in, with the number of the interface
    (``:1.0``) if it is in one; None, if it has no serial number.
    """
    interface = ""
    for ancestor in thing.line:
        if look.subsystem(ancestor) in _WITHOUT:
            return None
        if isinstance(vendor := look.value(ancestor, "idVendor"), str):
            product, number = look.value(ancestor, "idProduct"), look.value(ancestor, "serial")
            if not isinstance(number, str) or not number.strip() or not isinstance(product, str):
                return None
            return f"{vendor}:{product}:{number.strip()}{interface}"
        if not interface and look.subsystem(ancestor) == "usb":
            interface = ":" + ancestor.kernel.partition(":")[2]
    return None


def identity(look: Look, thing: Object) -> tuple[str, ...]:
    """Names for an object, the best one first: its serial number, its address, or if it has neither, its own name."""
    names = (serial(look, thing), address(look, thing))
    return tuple(name for name in names if name) or (thing.kernel,)

"""Addresses of PCI functions as numbers, and which virtual function one is."""

from __future__ import annotations

import re

from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.values import NoValue, Value, as_number

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


def pci_number(address: str) -> int | None:
    """A PCI function's address as one number: domain, bus, device and function (include/linux/pci.h, PCI_DEVID, and the
    domain above it). ``address``: 0000:b3:00.1, or such a number, perhaps with a domain and a colon before it. None of
    anything else.
    """
    if found := _ADDRESS.fullmatch(address):
        domain, bus, device, function = (int(part, 16) for part in found.groups())
        return domain << 16 | bus << 8 | device << 3 | function
    above_text, _, text = address.rpartition(":")
    above, below = as_number(above_text or "0"), as_number(text)
    return None if above is None or below is None or above < 0 or below < 0 else (above << 16) + below


def pci_slot(address: str) -> str | None:
    """Domain, bus and device of what ``pci_number`` takes: 0000:b3:00."""
    number = pci_number(address)
    return None if number is None else f"{number >> 16:04x}:{number >> 8 & 255:02x}:{number >> 3 & 31:02x}"


def virtual_function(look: Look, thing: Object) -> Value:
    """Which of its physical function's virtual functions a PCI function is: the number in the name of the link to it
    (Documentation/ABI/testing/sysfs-bus-pci, virtfnN).
    """
    for entry in look.entries(thing, "physfn/virtfn*"):
        if look.value(thing, entry) == thing.kernel:
            return entry.rpartition("virtfn")[2]
    return NoValue.missing()

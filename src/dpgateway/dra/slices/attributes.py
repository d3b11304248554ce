"""A device's attributes, for CEL expressions and for ``matchAttribute`` between drivers.

Attributes without a domain are of the driver's own, and a class or claim names them as
``device.attributes["<driver name>"].<name>``. Two of them are the gateway's: ``resource`` and ``id``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from dpgateway.dra.slices.names import LONGEST_IDENTIFIER, LONGEST_LABEL, identifier, label
from dpgateway.model import Device

LONGEST_VALUE = 64
"""Most bytes of a string value (DeviceAttributeMaxValueLength, resource/v1/types.go)."""
MOST = 32
"""Most attributes and capacities of a device (ResourceSliceMaxAttributesAndCapacitiesPerDevice)."""
INT64 = range(-(2**63), 2**63)

RESOURCE = "resource"
NUMA = "resource.kubernetes.io/numaNode"
"""An int since 1.37 (KEP-6072); absent for a device near several nodes."""
PCI_ADDRESS = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
"""``pci<domain>:<bus>`` (staging/src/k8s.io/dynamic-resource-allocation/deviceattribute)."""

_PCI = re.compile(r"pci ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
"""A hardware name that is a PCI function."""

Value = Mapping[str, str | int | bool]
"""One of ``{"string": ...}``, ``{"int": ...}``, ``{"bool": ...}``."""


class SaidAttributes(NamedTuple):
    """The attributes that a slice can have, and a sentence for each that it can't."""

    values: Mapping[str, Value]
    left_out: tuple[str, ...]


def attributes(device: Device, resource: str, roots: Mapping[str, str], *, room: int = MOST) -> SaidAttributes:
    """The attributes of a device. ``roots``: the PCIe root complex of each address; ``room``: attributes at most."""
    # The gateway's own and the standard ones first: classes depend on them, so they never give way to a driver's.
    found: dict[str, Value] = {RESOURCE: {"string": resource_value(resource)}}
    if _fits(device.id):
        found["id"] = {"string": device.id}
    if len(device.numa_nodes) == 1:
        found[NUMA] = {"int": device.numa_nodes[0]}
    if (address := pci_address(device)) is not None:
        found[PCI_ADDRESS] = {"string": address}
        if (root := roots.get(address)) is not None:
            found[PCIE_ROOT] = {"string": root}

    # Nothing is cut short: a selector that compares with the whole value would never match.
    left_out = []
    for name, value in device.attributes.items():
        own, said = identifier(name), _value(value)
        if not own:
            why = f"expected a name of at most {LONGEST_IDENTIFIER} characters, found {len(name)}"
        elif own in found:
            why = f"another attribute has the name {own} already"
        elif said is None and isinstance(value, str):
            why = f"expected at most {LONGEST_VALUE} bytes, found {len(value.encode())}"
        elif said is None:
            why = f"expected a number of 64 bits, found {value!r}"
        elif len(found) >= room:
            why = f"a device has at most {room} attributes beside its capacity"
        else:
            found[own] = said
            continue
        left_out.append(f"attribute {name!r}: {why}")
    return SaidAttributes(found, tuple(left_out))


def resource_value(resource: str) -> str:
    """The attribute ``resource``, which a class selects by."""
    return resource if _fits(resource) else label(resource)


def pci_address(device: Device) -> str | None:
    """The address of the one PCI function behind the device; None if there is none, or are several."""
    names = [match[1] for name in device.hardware or () if (match := _PCI.fullmatch(name))]
    return names[0] if len(names) == 1 else None


def _value(value: str | int | float | bool) -> Value | None:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value} if value in INT64 else None
    # There are no fractions in the API.
    text = repr(value) if isinstance(value, float) and math.isfinite(value) else str(value)
    return {"string": text} if _fits(text, LONGEST_VALUE) else None


def _fits(text: str, most: int = LONGEST_LABEL) -> bool:
    return len(text.encode()) <= most

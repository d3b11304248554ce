"""The neutral model: the values exchanged between drivers and the gateway, independent of any API.

Every value is frozen, and validates itself. Fronts translate to and from the kubelet's messages.

values  devices, allocations, and differences between lists of devices
checks  validation of their fields
"""

from dpgateway.model.checks import place, plain
from dpgateway.model.values import (
    HEALTHY,
    Allocation,
    Candidate,
    Device,
    DeviceNode,
    Health,
    Mount,
    changed,
    hardware,
    other_values,
    replaced,
)

__all__ = [
    "HEALTHY",
    "Allocation",
    "Candidate",
    "Device",
    "DeviceNode",
    "Health",
    "Mount",
    "changed",
    "hardware",
    "other_values",
    "place",
    "plain",
    "replaced",
]

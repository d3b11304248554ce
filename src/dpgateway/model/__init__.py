"""The neutral model: what drivers and the gateway say to each other, in no API's words.

Every value is frozen, and validates itself. Fronts translate to and from the kubelet's messages.

values  devices, what a container gets with them, and how lists of devices differ
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
    "other_values",
    "place",
    "plain",
    "replaced",
]

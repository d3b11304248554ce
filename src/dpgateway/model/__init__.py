"""The neutral model: what drivers and the gateway say to each other, in no API's words.

Every value is frozen, and validates itself. Fronts translate to and from the kubelet's messages.

values       devices, and what a container gets with them
checks       validation of their fields
differences  what changed from one list to the next
"""

from dpgateway.model.checks import place, plain
from dpgateway.model.differences import changed, other_values, replaced
from dpgateway.model.values import (
    HEALTHY,
    Allocation,
    Candidate,
    Device,
    DeviceNode,
    Health,
    Mount,
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

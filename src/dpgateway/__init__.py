"""Everything that a driver author imports, and nothing else.

See docs/ for how to write a driver, and ``dpgateway.testing`` for the test that every driver should pass.
"""

from dpgateway.config import from_plain
from dpgateway.drivers.contract import Context, Driver
from dpgateway.drivers.hookspecs import hookimpl
from dpgateway.errors import Busy, DeviceUnavailable, DriverError, refuse
from dpgateway.model import Allocation, Device, DeviceNode, Health, Mount

__all__ = [
    "Allocation",
    "Busy",
    "Context",
    "Device",
    "DeviceNode",
    "DeviceUnavailable",
    "Driver",
    "DriverError",
    "Health",
    "Mount",
    "from_plain",
    "hookimpl",
    "refuse",
]

"""Everything that a driver author imports, and nothing else.

docs/ says how to write a driver; ``dpgateway.testing`` has the test that every driver should pass.
"""

from typing import TypeVar

from dpgateway.drivers.contract import Context, Driver
from dpgateway.drivers.hookspecs import hookimpl
from dpgateway.errors import Busy, DeviceUnavailable, DriverError, refuse
from dpgateway.model import Allocation, Candidate, Device, DeviceNode, Health, Mount

__all__ = [
    "Allocation",
    "Busy",
    "Candidate",
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

_T = TypeVar("_T")


def from_plain(value: object, kind: type[_T]) -> _T:
    """``value``, as ``json.loads`` returns it, as a ``kind``: a frozen dataclass, read as strictly as ``Options`` are.

    Raises ValueError with one line of text: each key that is wrong, with what was found there and what was expected.
    What ``kind`` itself raises is raised as it is, unless it is a ValueError or TypeError.
    """
    from dpgateway.config import strict  # noqa: PLC0415  most drivers need no YAML parser, and it loads slowly

    return strict.from_plain(value, kind)

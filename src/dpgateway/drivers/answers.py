"""Checks what a driver returns and raises. What breaks the contract becomes a DriverFault that says what it did."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from dpgateway.errors import DriverFault, GatewayError, describe
from dpgateway.model import Allocation, Device

MOST_DEVICES = 200_000
"""More than fit into the largest list that a kubelet accepts; a driver that lists more won't stop."""


def devices(answer: object) -> tuple[Device, ...]:
    """What ``devices()`` returned. Consumes an iterator, so call it on the thread that called ``devices()``."""
    listed = _sequence("devices()", answer, MOST_DEVICES)
    ids = [device.id for device in listed]
    if len(set(ids)) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise DriverFault(f"devices() listed the id {twice!r} twice; an id means one device")
    return listed


def allocation(answer: object) -> Allocation:
    """What ``allocate()`` returned."""
    if not isinstance(answer, Allocation):
        raise DriverFault(f"allocate() returned {answer!r:.200}, expected an Allocation")
    return answer


def preferred(answer: object, available: Sequence[Device], size: int) -> tuple[Device, ...]:
    """What ``prefer()`` returned: ``size`` of ``available``, no more often than they are there."""
    chosen = _sequence("prefer()", answer, max(size, 1))
    if len(chosen) != size:
        raise DriverFault(f"prefer() returned {len(chosen)} devices, expected {size}")
    left = Counter(device.id for device in available)
    for device in chosen:
        if not left[device.id]:
            raise DriverFault(f"prefer() returned {device.id!r}, which isn't available, or more often than it is")
        left[device.id] -= 1
    return chosen


def _sequence(what: str, answer: object, most: int) -> tuple[Device, ...]:
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise DriverFault(f"{what} returned {answer!r:.200}, expected devices")
    items = tuple(itertools.islice(answer, most + 1))
    if len(items) > most:
        raise DriverFault(f"{what} returned more than {most} devices")
    if not all(issubclass(kind, Device) for kind in set(map(type, items))):
        wrong = next(item for item in items if not isinstance(item, Device))
        raise DriverFault(f"{what} returned {wrong!r:.200} among its devices, expected a Device")
    return items


def fault(method: str, error: BaseException) -> GatewayError:
    """What a driver raised, as a GatewayError: a GatewayError stays as it is, anything else is a bug of the driver."""
    if isinstance(error, GatewayError) and _speaks(error):
        return error
    return DriverFault(f"{method}() raised {describe(error)}")


def _speaks(error: BaseException) -> bool:
    try:
        str(error)
    except BaseException:
        return False
    return True

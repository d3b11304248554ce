"""Checks the results and exceptions of a driver. A DriverFault says how it broke the contract.

A driver is trusted, but may have bugs: types, sizes and values are checked. Objects that may change later, or are slow
to read, are copied on the driver's own thread.
"""

from __future__ import annotations

import itertools
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from itertools import compress, count
from operator import attrgetter, eq, is_, is_not
from typing import Any, TypeVar

from dpgateway.errors import (
    Busy,
    DeviceUnavailable,
    DriverError,
    DriverFault,
    DriverTimeout,
    GatewayError,
    cut,
    describe,
    legible,
)
from dpgateway.model import Allocation, Candidate, Device, Health, other_values, plain

T = TypeVar("T")

KINDS = (Busy, DeviceUnavailable, DriverError, DriverTimeout, DriverFault, GatewayError)
"""The kinds of errors, each before its base classes."""
OUTCOMES = dict(zip(KINDS, ("busy", "unavailable", "error", "timeout", "fault", "error"), strict=True))

MOST_DEVICES = 200_000
"""The limit for a generator without end: more devices than the largest list that a kubelet accepts."""

LONGEST_TRACE = 50_000
"""Characters kept of a driver's traceback."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_FIELDS = fields(Device)
_OPTIONAL: Mapping[str, Any] = {
    one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in _FIELDS if one.kw_only
}
_ID = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Copy(Device):
    """The values of a driver's own device, whose class may compute them, or change them later."""

    own: Any = field(default=None, compare=False, repr=False)
    """The driver's object."""


def own(devices: Iterable[Device]) -> tuple[Device, ...]:
    """The driver's own objects of these devices, the ones that it listed."""
    return tuple([device.own if type(device) is Copy else device for device in devices])


def unhealthy(device: Device, reason: str) -> Copy:
    """The same device, Unhealthy."""
    values = {one.name: getattr(device, one.name) for one in _FIELDS if one.name != "health"}
    return Copy(**values, health=Health.unhealthy(reason), own=own([device])[0])


def devices(answer: object, before: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    """Checks the result of ``devices()``. Runs the driver's code, so call it on the thread that called ``devices()``.

    ``before``: the last result. A device with the same values stays the same object, so that the gateway processes only
    differences, even if a driver makes new objects each time. A device of the driver's own class is copied: a list is a
    snapshot.
    """
    items: tuple[Device, ...] = _sequence("devices()", answer, MOST_DEVICES, Device)

    # The usual case: as many devices as before, in the same order, with few other objects. The loops over all devices
    # run in C; Python sees only the places with another object.
    if len(items) == len(before) and all(map(_lasts, set(map(type, items)))):
        given = own(before)
        places = list(compress(count(), map(is_not, given, items)))
        was, now = [before[place] for place in places], [items[place] for place in places]
        if all(map(eq, map(_ID, was), map(_ID, now))):
            listed = list(before)
            for place, other in zip(places, other_values(was, now), strict=True):
                item = items[place]
                if type(item) is not Device:  # the driver gets its newest object back: its class may carry more
                    listed[place] = _copied(item, {})
                elif other or given[place] is not before[place]:
                    listed[place] = item
            return before if all(map(is_, before, listed)) else tuple(listed)

    # Else each device is compared with the last one of its id.
    known, each = {device.id: device for device in before}, []
    for device in items:
        last = known.get(device.id)
        if type(device) is not Device:
            each.append(_copied(device, known))
        else:
            each.append(last if last is not None and type(last) is Device and last == device else device)
    ids = [device.id for device in each]
    if len(set(ids)) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise DriverFault(f"devices() listed the id {twice!r} twice; an id means one device")
    return tuple(each)


@lru_cache(maxsize=64)
def _lasts(kind: type) -> bool:
    """Whether the values of an object of this class never change: a frozen dataclass without computed fields."""
    frozen = "__dataclass_params__" in vars(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return frozen and all(getattr(kind, one.name, None) is getattr(Device, one.name) for one in _FIELDS)


def _copied(device: Device, known: Mapping[str, Device]) -> Device:
    """A validated copy. A driver's class may have an ``__init__`` of its own, so optional fields may be missing."""
    values: dict[str, Any] = {
        one.name: getattr(device, one.name, _OPTIONAL[one.name]) if one.name in _OPTIONAL else getattr(device, one.name)
        for one in _FIELDS
    }
    before = known.get(values["id"])
    if type(before) is Copy and before.own is device and all(getattr(before, name) == values[name] for name in values):
        return before
    return Copy(**values, own=device)


def candidates(answer: object) -> tuple[Candidate, ...]:
    """Checks the result of ``explain()``. Call it on the thread that called ``explain()``."""
    return tuple([plain(one, Candidate) for one in _sequence("explain()", answer, MOST_DEVICES, Candidate)])


def allocation(answer: object, method: str = "allocate") -> Allocation:
    """Checks the result of ``allocate()`` or ``preview()``. Call it on the thread that called the method."""
    if not isinstance(answer, Allocation):
        raise DriverFault(f"{method}() returned {_found(answer)}, expected an Allocation")
    return plain(answer, Allocation)


def preferred(answer: object, available: Sequence[Device], size: int) -> tuple[Device, ...]:
    """Checks the result of ``prefer()``: ``size`` of ``available``, each at most as often as there. Call it on the
    thread that called ``prefer()``.
    """
    chosen: tuple[Device, ...] = _sequence("prefer()", answer, max(size, 1), Device)
    if len(chosen) != size:
        raise DriverFault(f"prefer() returned {len(chosen)} devices, expected {size}")

    # Devices are matched by id, because a driver may return other objects.
    left = Counter(device.id for device in available)
    ids = [plain(device.id, str) for device in chosen]
    for id_ in ids:
        if not left[id_]:
            raise DriverFault(f"prefer() returned {id_!r}, which isn't available, or more often than it is")
        left[id_] -= 1
    by_id = {device.id: device for device in available}
    return tuple([by_id[id_] for id_ in ids])


def _sequence(what: str, answer: object, most: int, kind: type[T]) -> tuple[T, ...]:
    """The items of an iterable, which may have no end. Each must be a ``kind``."""
    things = f"{kind.__name__.lower()}s"
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise DriverFault(f"{what} returned {_found(answer)}, expected {things}")
    items = tuple(itertools.islice(answer, most + 1))
    if len(items) > most:
        raise DriverFault(f"{what} returned more than {most} {things}")
    if not all(issubclass(one, kind) for one in set(map(type, items))):
        wrong = next(item for item in items if not isinstance(item, kind))
        raise DriverFault(f"{what} returned {_found(wrong)} among its {things}, expected a {kind.__name__}")
    return items


class DriverEnded(DriverError):
    """The driver ended before its call did."""

    def __init__(self) -> None:
        super().__init__("the driver ended")


def _found(value: object) -> str:
    """Without its address, which differs at each call: a fault is logged again if its text changes."""
    return _ADDRESS.sub("", repr(value))[:200]


def fault(method: str, error: BaseException) -> GatewayError:
    """A driver's exception as a GatewayError: a GatewayError itself, or a DriverFault, a bug of the driver."""
    if isinstance(error, GatewayError):
        return error
    return DriverFault(f"{method}() raised {describe(error)}")


def outcome(error: BaseException) -> str:
    """The kind of the error in one word, for counters."""
    return next((word for kind, word in OUTCOMES.items() if isinstance(error, kind)), "fault")


def ask(method: str, call: Callable[[], T]) -> T:
    """Calls a driver's method, on the driver's thread. Exceptions leave as errors of our own; their text and traceback
    are made here, because a driver's ``__str__`` may hang. Only a bug has a traceback.
    """
    try:
        return call()
    except BaseException as error:
        ours = fault(method, error)
        if ours is error:
            ours = next(kind for kind in KINDS if isinstance(error, kind))(legible(str(error)))
        else:
            try:
                ours.trace = cut("".join(traceback.format_exception(error)).rstrip("\n"), LONGEST_TRACE)
            except Exception as raised:  # of a syntax error whose text is no string, for example
                ours.trace = f"{describe(error)} (its traceback can't be had: {describe(raised)})"
    raise ours


def trace(error: BaseException | None) -> str | None:
    """The value of a log line's field ``exception``."""
    return error.trace if isinstance(error, GatewayError) else None

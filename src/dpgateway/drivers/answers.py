"""Checks what a driver returns and raises. What breaks the contract becomes a DriverFault that says what it did."""

from __future__ import annotations

import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
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
from dpgateway.model import Allocation, Candidate, Device, plain, replaced

T = TypeVar("T")

KINDS = (Busy, DeviceUnavailable, DriverError, DriverTimeout, DriverFault, GatewayError)
"""Each stands before its base classes."""
OUTCOMES = dict(zip(KINDS, ("busy", "unavailable", "error", "timeout", "fault", "error"), strict=True))

MOST_DEVICES = 200_000
"""More than fit into the largest list that a kubelet accepts; a driver that lists more won't stop."""

LONGEST_TRACE = 50_000
"""Characters of a driver's traceback that are kept."""

_FIELDS = fields(Device)


@dataclass(frozen=True, slots=True)
class Copy(Device):
    """The plain values of a device that is of a driver's own class: its attributes may be slow, or raise."""

    own: Any = field(default=None, compare=False, repr=False)
    """What the driver listed."""


def own(devices: Iterable[Device]) -> tuple[Device, ...]:
    """The very objects that the driver listed."""
    return tuple([device.own if type(device) is Copy else device for device in devices])


def devices(answer: object, before: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    """What ``devices()`` returned. Runs the driver's code, so call it on the thread that called ``devices()``.

    ``before``: what this returned the last time. What is the very same object there isn't checked again; one of a
    driver's own class needs no new copy while its values are the same.
    """
    items: tuple[Device, ...] = _items("devices()", answer, MOST_DEVICES, Device)
    new = replaced(before, items)
    if new is not None and all(type(now) is Device and now.id == was.id for was, now in new):
        return items if new else before
    _check_kinds("devices()", items, Device)
    copies = {id(device.own): device for device in before if type(device) is Copy}
    listed = tuple([_copied(device, copies.get(id(device))) for device in items])
    ids = [device.id for device in listed]
    if len(set(ids)) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise DriverFault(f"devices() listed the id {twice!r} twice; an id means one device")
    return listed


def candidates(answer: object) -> tuple[Candidate, ...]:
    """What ``explain()`` returned. Call it on the thread that called ``explain()``."""
    return tuple([plain(one, Candidate) for one in _sequence("explain()", answer, MOST_DEVICES, Candidate)])


def allocation(answer: object) -> Allocation:
    """What ``allocate()`` returned. Call it on the thread that called ``allocate()``."""
    if not isinstance(answer, Allocation):
        raise DriverFault(f"allocate() returned {answer!r:.200}, expected an Allocation")
    return plain(answer, Allocation)


def preferred(answer: object, available: Sequence[Device], size: int) -> tuple[Device, ...]:
    """What ``prefer()`` returned: ``size`` of ``available``, no more often than they are there. Call it on the thread
    that called ``prefer()``.
    """
    chosen = _sequence("prefer()", answer, max(size, 1), Device)
    if len(chosen) != size:
        raise DriverFault(f"prefer() returned {len(chosen)} devices, expected {size}")
    left = Counter(device.id for device in available)
    ids = [plain(device.id, str) for device in chosen]
    for id_ in ids:
        if not left[id_]:
            raise DriverFault(f"prefer() returned {id_!r}, which isn't available, or more often than it is")
        left[id_] -= 1
    by_id = {device.id: device for device in available}
    return tuple([by_id[id_] for id_ in ids])


def _copied(device: Device, before: Copy | None) -> Device:
    """``before``: the copy of the same object, whose class may compute what it says, so it is compared."""
    if type(device) is Device:
        return device
    values = {one.name: _value(device, one) for one in _FIELDS}
    if before is not None and all(getattr(before, name) == value for name, value in values.items()):
        return before
    return Copy(**values, own=device)


def _value(device: Device, field_: Field[Any]) -> Any:  # noqa: ANN401
    """A driver's own class may lack the fields that can be left out."""
    if field_.kw_only and not hasattr(device, field_.name):
        return field_.default if field_.default_factory is MISSING else field_.default_factory()
    return getattr(device, field_.name)


def _sequence(what: str, answer: object, most: int, kind: type[T]) -> tuple[T, ...]:
    items: tuple[T, ...] = _items(what, answer, most, kind)
    _check_kinds(what, items, kind)
    return items


def _items(what: str, answer: object, most: int, kind: type[T]) -> tuple[Any, ...]:
    """Whatever was listed."""
    things = f"{kind.__name__.lower()}s"
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise DriverFault(f"{what} returned {answer!r:.200}, expected {things}")
    items = tuple(itertools.islice(answer, most + 1))
    if len(items) > most:
        raise DriverFault(f"{what} returned more than {most} {things}")
    return items


def _check_kinds(what: str, items: tuple[object, ...], kind: type[T]) -> None:
    if not all(issubclass(one, kind) for one in set(map(type, items))):
        wrong = next(item for item in items if not issubclass(type(item), kind))  # its __class__ may lie
        name = kind.__name__
        raise DriverFault(f"{what} returned {wrong!r:.200} among its {name.lower()}s, expected a {name}")


def fault(method: str, error: BaseException) -> GatewayError:
    """What a driver raised, as a GatewayError: a GatewayError stays as it is, anything else is a bug of the driver."""
    if isinstance(error, GatewayError) and _speaks(error):
        return error
    return DriverFault(f"{method}() raised {describe(error)}")


def outcome(error: BaseException) -> str:
    """The kind of the error in a word, for who counts."""
    return next((word for kind, word in OUTCOMES.items() if isinstance(error, kind)), "fault")


def ask(method: str, call: Callable[[], T]) -> T:
    """Calls a driver's method; for the driver's thread. What it raises leaves as an error of our own, whose text and
    traceback are made here, because a driver's ``__str__`` may hang. Only a bug has a traceback.
    """
    try:
        return call()
    except BaseException as error:
        ours = fault(method, error)
        if ours is error:
            ours = next(kind for kind in KINDS if isinstance(error, kind))(legible(str(error)))
        else:
            ours.trace = _trace(error)
    raise ours


def _trace(error: BaseException) -> str:
    try:
        return cut("".join(traceback.format_exception(error)).rstrip("\n"), LONGEST_TRACE)
    except Exception as raised:  # of a syntax error whose text is no string, for example
        return f"{describe(error)} (its traceback can't be had: {describe(raised)})"


def trace(error: BaseException | None) -> str | None:
    """For the field ``exception`` of a line."""
    return error.trace if isinstance(error, GatewayError) else None


def _speaks(error: BaseException) -> bool:
    try:
        str(error)
    except BaseException:
        return False
    return True

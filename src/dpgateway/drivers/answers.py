"""Checks what a driver returns and raises. What breaks the contract becomes a DriverFault that says what it did."""

from __future__ import annotations

import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from itertools import compress, count
from operator import attrgetter, is_, is_not, ne
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
"""Each stands before its base classes."""
OUTCOMES = dict(zip(KINDS, ("busy", "unavailable", "error", "timeout", "fault", "error"), strict=True))

MOST_DEVICES = 200_000
"""More than fit into the largest list that a kubelet accepts; a driver that lists more won't stop."""

LONGEST_TRACE = 50_000
"""Characters of a driver's traceback that are kept."""

_FIELDS = fields(Device)
_ID = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Copy(Device):
    """The plain values of a device that is of a driver's own class: its attributes may be slow, or raise."""

    own: Any = field(default=None, compare=False, repr=False)
    """What the driver listed."""


def own(devices: Iterable[Device]) -> tuple[Device, ...]:
    """The very objects that the driver listed."""
    return tuple([device.own if type(device) is Copy else device for device in devices])


def unhealthy(device: Device, reason: str) -> Copy:
    """A device that its driver calls healthy, and that can't be given."""
    values = {one.name: getattr(device, one.name) for one in _FIELDS if one.name != "health"}
    return Copy(**values, health=Health.unhealthy(reason), own=own([device])[0])


def devices(answer: object, before: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    """What ``devices()`` returned. Runs the driver's code, so call it on the thread that called ``devices()``.

    ``before``: what this returned the last time. A device that says the same stays the same object, so that whoever
    gets the list looks only at what differs, also if a driver makes new values each time.
    """
    items: tuple[Device, ...] = _items("devices()", answer, MOST_DEVICES, Device)
    kinds = _check_kinds("devices()", items, Device)
    # the usual case: as many devices as before, in the same order, and few of them are other objects
    if len(items) == len(before) and all(map(_lasts, kinds)):
        listed = _replaced(before, items)
        if listed is not None:
            return listed
    known = {device.id: device for device in before}
    listed = tuple([_copied(device, known) for device in items])
    ids = [device.id for device in listed]
    if len(set(ids)) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise DriverFault(f"devices() listed the id {twice!r} twice; an id means one device")
    return listed


def _replaced(before: tuple[Device, ...], items: tuple[Device, ...]) -> tuple[Device, ...] | None:
    """The devices of ``before``, but for those that say something else now; None, if any has another id."""
    given = own(before)
    places = list(compress(count(), map(is_not, given, items)))
    was, now = [before[place] for place in places], [items[place] for place in places]
    if any(map(ne, map(_ID, was), map(_ID, now))):
        return None
    listed = list(before)
    for place, other in zip(places, other_values(was, now), strict=True):
        # what a driver's own class carries besides is the driver's, so the driver gets its newest object back
        if other or type(items[place]) is not Device or given[place] is not before[place]:
            listed[place] = _copied(items[place], {})
    return before if all(map(is_, before, listed)) else tuple(listed)


@lru_cache(maxsize=64)
def _lasts(kind: type) -> bool:
    """Whether an object of this class says the same for ever: it is a frozen dataclass, and computes nothing."""
    frozen = "__dataclass_params__" in vars(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return frozen and all(getattr(kind, one.name, None) is getattr(Device, one.name) for one in _FIELDS)


def candidates(answer: object) -> tuple[Candidate, ...]:
    """What ``explain()`` returned. Call it on the thread that called ``explain()``."""
    return tuple([plain(one, Candidate) for one in _sequence("explain()", answer, MOST_DEVICES, Candidate)])


def allocation(answer: object, method: str = "allocate") -> Allocation:
    """What ``allocate()``, or ``preview()``, returned. Call it on the thread that called that."""
    if not isinstance(answer, Allocation):
        raise DriverFault(f"{method}() returned {answer!r:.200}, expected an Allocation")
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


def _copied(device: Device, known: Mapping[str, Device]) -> Device:
    """``known``: the list before, by id. What says the same is taken from there: a value; or the copy of the same
    object, whose class may compute what it says.
    """
    if type(device) is Device:
        before = known.get(device.id)
        return before if type(before) is Device and before == device else device
    values = {one.name: _value(device, one) for one in _FIELDS}
    before = known.get(values["id"])
    was = before if type(before) is Copy and before.own is device else None
    if was is not None and all(getattr(was, name) == value for name, value in values.items()):
        return was
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


def _check_kinds(what: str, items: tuple[object, ...], kind: type[T]) -> Collection[type]:
    """The classes of the items."""
    kinds = set(map(type, items))
    if not all(issubclass(one, kind) for one in kinds):
        wrong = next(item for item in items if not isinstance(item, kind))
        name = kind.__name__
        raise DriverFault(f"{what} returned {wrong!r:.200} among its {name.lower()}s, expected a {name}")
    return kinds


def fault(method: str, error: BaseException) -> GatewayError:
    """What a driver raised, as a GatewayError: a GatewayError stays as it is, anything else is a bug of the driver."""
    if isinstance(error, GatewayError):
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

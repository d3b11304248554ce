"""What differs between two lists that are mostly the same objects.

Among thousands of devices one changes. Values are frozen, so what is the very same object hasn't changed: only where
the objects differ need anybody look at values. The loops over the whole list run in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import compress
from operator import attrgetter, is_not, ne
from typing import Any, TypeVar

from dpgateway.model.values import Device

K = TypeVar("K")
V = TypeVar("V")

_ABSENT = object()
_VALUES: Any = attrgetter(*(field.name for field in fields(Device)))


def replaced(before: Sequence[V], now: Sequence[V]) -> list[tuple[V, V]] | None:
    """What was and what is, wherever another object is at the same place; None if the lists aren't equally long."""
    if len(before) != len(now):
        return None
    return list(compress(zip(before, now, strict=True), map(is_not, before, now)))


def other_values(before: Iterable[Device], now: Iterable[Device]) -> Iterable[bool]:
    """Whether the one device says something else than the other, pair by pair. It makes and compares tuples in C."""
    return map(ne, map(_VALUES, before), map(_VALUES, now))


def changed(before: Mapping[K, V], now: Mapping[K, V]) -> list[K]:
    """The keys of ``now`` under which ``before`` has another object, or nothing."""
    if list(before) == list(now):  # the usual case, and several times as fast
        return list(compress(now, map(is_not, before.values(), now.values())))
    return [key for key, value in now.items() if before.get(key, _ABSENT) is not value]

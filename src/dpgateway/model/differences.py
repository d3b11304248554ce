"""Differences of two lists that have most objects in common.

Among thousands of devices one changes. Values are frozen, so an identical object hasn't changed; values are compared
where the objects differ. The loops over the whole list run in C.
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
    """The old and the new object at each place where they differ; None if the lists have different lengths."""
    if len(before) != len(now):
        return None
    return list(compress(zip(before, now, strict=True), map(is_not, before, now)))


def other_values(before: Iterable[Device], now: Iterable[Device]) -> Iterable[bool]:
    """Whether two devices have different values, pair by pair. Tuples are made and compared in C."""
    return map(ne, map(_VALUES, before), map(_VALUES, now))


def changed(before: Mapping[K, V], now: Mapping[K, V]) -> list[K]:
    """The keys of ``now`` that are new, or have another object."""
    if list(before) == list(now):  # the usual case, and several times as fast
        return list(compress(now, map(is_not, before.values(), now.values())))
    return [key for key, value in now.items() if before.get(key, _ABSENT) is not value]

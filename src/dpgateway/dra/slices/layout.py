"""Devices and counters on slices, within the API's limits.

A slice has either counter sets or devices (validation of ResourceSliceSpec, v0.37), at most 128 devices, and 64 if one
of them has a taint or consumes counters. Slices have 64 always: else the first device that becomes Unhealthy would move
half of the others to other slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from dpgateway.dra.slices.offered import PoolContent

T = TypeVar("T")

MOST_DEVICES = 64
"""ResourceSliceMaxDevicesWithAdvancedFeatures, resource/v1/types.go."""
MOST_SETS = 8
"""ResourceSliceMaxCounterSets."""

Content = Mapping[str, object]
"""The part of a slice's spec that says what it offers: ``devices`` or ``sharedCounters``."""


def contents(pool: PoolContent) -> tuple[Content, ...]:
    """The content of each slice of the pool, in order. A pool without devices has one empty slice: nothing is free
    here, which is not the same as no DRA on this node.
    """
    counted = [{"sharedCounters": list(sets)} for sets in _pieces(pool.counter_sets, MOST_SETS)]
    devices = [{"devices": list(some)} for some in _pieces(pool.devices, MOST_DEVICES)]
    return (*counted, *(devices or [{"devices": []}]))


def _pieces(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (items[i : i + most] for i in range(0, len(items), most))

"""Numbers of calls: how many, with which outcomes, and how long they took. Counting one takes about a microsecond."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)
"""Seconds. A call takes a millisecond; a kubelet waits 30 s for a preparation."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one name."""

    outcomes: Mapping[str, int]
    durations: tuple[int, ...]
    """How many took no longer than each of BOUNDS, but longer than the one before; the last: longer than all."""
    seconds: float
    """Of all calls together."""


@dataclass(slots=True)
class _Counting:
    outcomes: Counter[str] = field(default_factory=Counter)
    durations: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0


class CallStats:
    """Calls by name. Used from one thread."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counting] = {}

    def add(self, name: str, outcome: str, began: float) -> None:
        """A call of this name ends now; it began at ``began``, by time.monotonic()."""
        seconds = time.monotonic() - began
        counted = self._counted.get(name)
        if counted is None:
            counted = self._counted[name] = _Counting()
        counted.outcomes[outcome] += 1
        counted.durations[bisect_left(BOUNDS, seconds)] += 1
        counted.seconds += seconds

    def read(self) -> Mapping[str, Calls]:
        """By name."""
        return {
            name: Calls(dict(one.outcomes), tuple(one.durations), one.seconds) for name, one in self._counted.items()
        }

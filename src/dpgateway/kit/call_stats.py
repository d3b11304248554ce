"""Statistics of calls: numbers, outcomes and durations. Counting a call takes about a microsecond."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

SLOW = 5.0
"""Seconds from which a call is slow."""
BOUNDS = (0.01, 0.1, 1.0, SLOW, 30.0)
"""Bounds of the histogram, in seconds, few because each is a series. A call takes a millisecond; a kubelet waits 30 s
for a preparation.
"""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one name."""

    outcomes: Mapping[str, int]
    durations: tuple[int, ...]
    """Histogram: the number of calls up to each of BOUNDS and above the one before; the last: above all of them."""
    seconds: float
    """Sum of all durations."""

    @property
    def slow(self) -> int:
        """The number of calls that took longer than SLOW."""
        return sum(self.durations[BOUNDS.index(SLOW) + 1 :])


@dataclass(slots=True)
class _Counting:
    outcomes: Counter[str]
    durations: list[int]
    seconds: float = 0.0


@dataclass(slots=True)
class CallStats:
    """Calls by name. Used from one thread."""

    _counted: dict[str, _Counting] = field(default_factory=dict)

    def add(self, name: str, outcome: str, began: float) -> None:
        """Counts a call that ends now. ``began``: its start, by time.monotonic()."""
        seconds = time.monotonic() - began
        counted = self._counted.get(name)
        if counted is None:
            counted = self._counted[name] = _Counting(Counter(), [0] * (len(BOUNDS) + 1))
        counted.outcomes[outcome] += 1
        counted.durations[bisect_left(BOUNDS, seconds)] += 1
        counted.seconds += seconds

    def read(self) -> Mapping[str, Calls]:
        """The statistics, by name."""
        return {
            name: Calls(dict(one.outcomes), tuple(one.durations), one.seconds) for name, one in self._counted.items()
        }

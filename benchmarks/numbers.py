"""Percentiles, and comparisons of candidates that take turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank, so that the result is a measured value."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


class Turns:
    """Rounds of several candidates that take turns. A round is compared with the same round of the others, so that a
    slow phase of the machine affects all of them.
    """

    def __init__(self, rounds: int, candidates: dict[str, Callable[[], Sequence[float]]]) -> None:
        """Runs all rounds. A candidate's function runs one round and returns its samples."""
        self.samples: dict[str, list[float]] = {name: [] for name in candidates}
        self._medians: dict[str, list[float]] = {name: [] for name in candidates}
        for number in range(rounds):
            # Every other round in reverse, so that no candidate always runs in the wake of the same one.
            order = list(candidates) if number % 2 == 0 else list(reversed(candidates))
            for name in order:
                round_ = candidates[name]()
                self.samples[name] += round_
                self._medians[name].append(p50(round_))

    def p50(self, name: str) -> float:
        return p50(self.samples[name])

    def ratio(self, name: str, other: str) -> float:
        """The median of the rounds' ratios of medians."""
        return p50([a / b for a, b in zip(self._medians[name], self._medians[other], strict=True)])

    def difference(self, name: str, other: str) -> float:
        """The median of the rounds' differences of medians."""
        return p50([a - b for a, b in zip(self._medians[name], self._medians[other], strict=True)])

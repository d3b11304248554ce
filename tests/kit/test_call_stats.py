"""Counts and durations of calls."""

import math
import time

import pytest

from dpgateway.kit.call_stats import BOUNDS, CallStats


def test_each_call_counts_under_its_name_and_outcome():
    stats = CallStats()
    for name, outcome in (("a", "good"), ("a", "good"), ("a", "bad"), ("b", "bad")):
        stats.add(name, outcome, time.monotonic())
    assert {name: calls.outcomes for name, calls in stats.read().items()} == {
        "a": {"good": 2, "bad": 1},
        "b": {"bad": 1},
    }


@pytest.mark.parametrize("place", range(len(BOUNDS) + 1))
def test_a_duration_counts_below_the_next_bound(place):
    stats, before = CallStats(), (0.0, *BOUNDS)[place]
    stats.add("a", "good", time.monotonic() - before - 0.0002)
    calls = stats.read()["a"]
    assert calls.seconds > before
    between = zip((0.0, *BOUNDS), (*BOUNDS, math.inf), strict=True)
    assert calls.durations == tuple(int(lower < calls.seconds <= upper) for lower, upper in between)


def test_what_was_read_stays_as_it_was():
    stats = CallStats()
    stats.add("a", "good", time.monotonic())
    read = stats.read()
    stats.add("a", "good", time.monotonic())
    assert (read["a"].outcomes, sum(read["a"].durations)) == ({"good": 1}, 1)

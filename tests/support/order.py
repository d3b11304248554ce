"""The order of tests that several workers share: those that wait are spread among those that compute.

Tests of one folder are much alike. In the order of their names all workers would wait in `tests/end_to_end` at the same
time, while the processors idle, and compute at the same time elsewhere. The longest come first, so that none is left to
one worker at the end.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

WAITING = {
    "tests/scenarios/test_soak.py": 5.0,  # these three take minutes on real device managers
    "tests/scenarios/test_random.py": 3.0,
    "tests/scenarios/test_walk.py": 4.0,
    "tests/end_to_end/test_front_auto.py": 14.0,
    "tests/end_to_end/test_fronts_random.py": 8.0,
    "tests/end_to_end/test_events.py": 4.0,
    "tests/switching/test_moving.py": 4.0,
    "tests/end_to_end/test_process.py": 1.0,
    "tests/end_to_end/test_pools.py": 1.0,
    "tests/events/test_writing.py": 1.0,
    "tests/scenarios/test_linger.py": 1.0,
    "tests/switching/test_watching.py": 1.0,
    "tests/daemon/test_reloading.py": 1.0,
    "tests/dra/test_front.py": 1.0,
    "tests/dra/test_api_server.py": 1.0,
    "tests/dra/test_publishing.py": 1.0,
    "tests/end_to_end/": 0.7,
    "tests/scenarios/": 0.5,
    "backends/fpga/tests/programmers/": 0.3,
}
"""Seconds that a test of this file or folder waits on the average, roughly; in the order in which they begin."""
LATEST = 0.9
"""The part of those that compute after which none that waits begins."""
_STARTS = tuple(WAITING)


def spread(tests: Iterable[T], path: Callable[[T], str]) -> list[T]:
    """All of them. After each that waits come as many of the others as its time is a part of all that time."""
    computing: list[T] = []
    waiting: list[tuple[int, T]] = []
    for test in tests:
        place = next((place for place, start in enumerate(_STARTS) if path(test).startswith(start)), None)
        if place is None:
            computing.append(test)
        else:
            waiting.append((place, test))
    waiting.sort(key=lambda one: one[0])

    whole = sum(WAITING[_STARTS[place]] for place, _ in waiting)
    ordered: list[T] = []
    before, done = 0.0, 0
    for place, test in waiting:
        begins = int(LATEST * len(computing) * before / whole)
        ordered += [*computing[done:begins], test]
        before, done = before + WAITING[_STARTS[place]], begins
    return ordered + computing[done:]

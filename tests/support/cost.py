"""What work costs, for tests of how that grows.

Ten times the input is ten times the cost where it grows with the input, and a hundred times where it grows with its
square: a bound of thirty times stands between them.
"""

import time
import timeit
from collections.abc import Callable
from typing import Any


def cost(work: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of this thread's processor time: the least of three, and without the garbage collector, because a busy
    neighbour empties the processor's caches, and a collection goes over all that earlier tests left.
    """
    return min(_once(work, arguments) for _ in range(3))


def within(seconds: float, work: Callable[..., Any], *arguments: Any) -> bool:
    """Whether that is less than ``seconds``. Once is enough, for it would be the least."""
    return any(_once(work, arguments) < seconds for _ in range(3))


def _once(work: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    return timeit.timeit(lambda: work(*arguments), timer=time.thread_time, number=1)

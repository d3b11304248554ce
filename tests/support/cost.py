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
    return min(timeit.repeat(lambda: work(*arguments), timer=time.thread_time, number=1, repeat=3))

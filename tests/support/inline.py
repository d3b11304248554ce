"""Threads that are none: for an event loop in virtual time, which doesn't wait for another thread."""

import asyncio
import math
from collections.abc import Callable
from typing import TypeVar

from dpgateway.kit.threads import Threads

T = TypeVar("T")


class Inline(Threads):
    """Runs every function where it is asked for."""

    def call(self, name: str, function: Callable[[], T], seconds: float = math.inf) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        return future

"""Threads as they are when the system is out of them, or a disk hangs."""

import asyncio
import math
import threading

from dpgateway.errors import NoThread
from dpgateway.kit.threads import Threads


class Scarce(Threads):
    """Refuses every call while ``none_left``."""

    none_left = True

    def call(self, name, function, seconds=0.0):
        if not self.none_left:
            return super().call(name, function, seconds)
        future = asyncio.get_running_loop().create_future()
        future.set_exception(NoThread(f"the system has no thread left for {name}"))
        return future


class StuckDisk(Threads):
    """The calls of one kind wait while the disk is ``stuck``, and are done once it isn't."""

    def __init__(self, kind):
        super().__init__()
        self._kind, self._goes = kind, threading.Event()
        self._goes.set()

    def stick(self):
        self._goes.clear()

    def go_on(self):
        self._goes.set()

    def call(self, name, function, seconds=math.inf):
        def slow():
            self._goes.wait(60)
            return function()

        return super().call(name, slow if name == self._kind else function, seconds)

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


class Hanging(Threads):
    """No call ends."""

    def call(self, name, function, seconds=0.0):
        return asyncio.get_running_loop().create_future()


class StuckDisk(Threads):
    """Calls of one kind hang from ``stick`` to ``go_on``, or later ones only to ``pass_by``."""

    def __init__(self, kind):
        super().__init__()
        self._kind, self._stuck, self._goes_on = kind, False, threading.Event()
        self.hanging = 0

    def stick(self):
        self._stuck = True

    def pass_by(self):
        self._stuck = False

    def go_on(self):
        self._stuck = False
        self._goes_on.set()

    def call(self, name, function, seconds=math.inf):
        def stuck():
            self.hanging += 1
            self._goes_on.wait(60)
            try:
                return function()
            finally:
                self.hanging -= 1

        return super().call(name, stuck if self._stuck and name == self._kind else function, seconds)

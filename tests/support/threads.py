"""Threads as they are when the system is out of them."""

import asyncio

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

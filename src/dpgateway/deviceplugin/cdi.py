"""How CDI names reach containers: by name, where kubelet and runtime know CDI, else as what they stand for.

A kubelet or a runtime that doesn't know CDI drops the names in silence, and the container starts without its device. So
where that may be, what the names stand for is said in words that every kubelet knows; and a name that stands for
nothing fails the Allocate, because the runtime would refuse the container again and again.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from functools import partial

from dpgateway.cdi.directories import SpecDirectories, look
from dpgateway.cdi.expansion import expand
from dpgateway.config.values import CdiKind
from dpgateway.errors import CdiError
from dpgateway.model import Allocation
from dpgateway.process.threads import Threads

PATIENCE = 5.0
"""Seconds that the specs' disk has to answer."""

Known = Callable[[], Awaitable[bool | None]]
"""Finds out whether something is so; None if that can't be known."""


class Way(enum.Enum):
    """What a kubelet is told."""

    NAMES = "names"
    EXPANDED = "expanded"
    EITHER = "expanded if all of it can be, else names"


def way(wanted: CdiKind, kubelet: bool | None, runtime: bool | None) -> Way:
    """``kubelet``, ``runtime``: whether they do something with names; None if that isn't known."""
    if wanted == "never" or kubelet is False or runtime is False:
        return Way.EXPANDED
    return Way.NAMES if kubelet and runtime else Way.EITHER


class Cdi:
    """One for all resources; used from the event loop."""

    def __init__(self, specs: SpecDirectories, threads: Threads, runtime: Known, patience: float = PATIENCE) -> None:
        """``runtime``: says whether the runtime does something with names."""
        self._specs, self._threads, self._runtime, self._patience = specs, threads, runtime, patience

    async def passed(self, allocation: Allocation, wanted: CdiKind, kubelet: bool | None) -> tuple[Allocation, str]:
        """The allocation as kubelet and runtime can take it, and what may be wrong with that; empty if nothing.

        ``kubelet``: whether it passes names on. Raises CdiError, also for a name that stands for nothing.
        """
        runtime = None if way(wanted, kubelet, runtime=True) is Way.EXPANDED else await self._runtime()
        chosen = way(wanted, kubelet, runtime)
        reading = self._threads.call("read CDI specs", partial(self._passed, allocation, chosen), self._patience)
        try:
            async with asyncio.timeout(self._patience):
                return await reading
        except TimeoutError:
            raise CdiError(f"the CDI specs couldn't be read within {self._patience:g} s") from None

    def _passed(self, allocation: Allocation, chosen: Way) -> tuple[Allocation, str]:
        """Blocks."""
        resolved = self._specs.resolve(allocation.cdi_devices)
        if chosen is Way.NAMES:
            return allocation, ""
        try:
            return expand(allocation, resolved, look), ""
        except CdiError as error:
            if chosen is Way.EITHER:
                return allocation, f"CDI devices are given by name, though it isn't known that they arrive: {error}"
            raise

"""Keeps the gateways' CDI specs while containers need them: over restarts and reboots, and for orphans, too.

A kubelet repeats an Allocate's answer to the runtime, with the same CDI name, at each restart of the container. So a
spec is needed while a single container holds all of its ids. Specs are checked periodically, because links to device
nodes change, and others may empty the directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from dpgateway.cdi.own import OwnSpec, OwnSpecs
from dpgateway.errors import GatewayError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import KeyedLanes, aligned
from dpgateway.kit.threads import Threads
from dpgateway.resource.front import NOTED_WITHIN, Usage
from dpgateway.resource.orphans import Orphans

T = TypeVar("T")

PAUSE = 5.0
"""Seconds between two looks."""
PATIENCE = 10.0
"""Seconds that the disk has to answer."""

_log = bind(__name__)


class SpecKeeper:
    """Keeps the specs of all resources. Used from the event loop."""

    def __init__(
        self,
        specs: OwnSpecs,
        usages: Sequence[Mapping[str, Usage]],
        orphans: Orphans,
        threads: Threads,
        pause: float = PAUSE,
    ) -> None:
        """``usages``: of each front, by resource; with the orphans, once ``orphans`` knows them."""
        self._specs, self._usages, self._orphans = specs, usages, orphans
        self._threads, self._pause = threads, pause
        self._lanes = KeyedLanes("CDI specs of")
        self.unsure: Callable[[Sequence[str]], bool] = lambda _: False
        """Whether a front may have given these ids, and doesn't know."""
        self._complaint = Complaint(_log, "containers whose CDI specs aren't right can't start again: %s")

    async def run(self) -> None:
        """Never returns."""
        # All specs were needed when the last gateway ended, so all are restored at first.
        with self._complaining():
            await self._on_thread(self._specs.sweep)
            await self._on_thread(partial(self._specs.keep, await self._on_thread(self._specs.all)))
        await self._orphans.known.wait()
        while True:
            with self._complaining():
                await self._look()
            await asyncio.sleep(aligned(self._pause))

    async def _look(self) -> None:
        written = await self._on_thread(self._specs.all)
        if not written:
            return
        over = [one for one in written if not self._needed(one)]
        if not all(self._of(one) for one in over):
            whole = await self._orphans.look()  # another gateway may have given it since this one began
            over = [one for one in over if not self._needed(one) and (whole or self._of(one))]
        if over and (removed := await self._on_thread(partial(self._specs.remove, over))):
            _log.info("removed CDI specs that nobody needs any more: %d", removed)
        await self._on_thread(partial(self._specs.keep, [one for one in written if self._needed(one)]))

    def _needed(self, one: OwnSpec) -> bool:
        """Whether a container may use the spec. A young spec may be another gateway's, before or after this one, with a
        grant unknown here; an old one of a resource without usage isn't held.
        """
        young = abs(time.time() - one.date) < NOTED_WITHIN
        if young or self.unsure(one.given.ids):
            return True
        return any(usage.value.one_has(one.given.ids) for usage in self._of(one))

    def _of(self, one: OwnSpec) -> list[Usage]:
        return [usages[one.given.resource] for usages in self._usages if one.given.resource in usages]

    @contextlib.contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
            self._complaint.over()
        except (GatewayError, OSError) as error:  # GatewayError also for want of a thread
            self._complaint.say(str(error))

    async def _on_thread(self, function: Callable[[], T]) -> T:
        """Runs the function once the call before it has returned, because each call that hangs takes a thread."""
        work = partial(self._threads.call, "keep CDI specs", function, PATIENCE)
        return await self._lanes.in_turn("all resources", work, PATIENCE, "the disk")

"""Hands over all resources of a kubelet, pool by pool: the older gateway's side (``protocol``, ``older``).

Each resource of a pool must know what the others have given away, so a pool is handed over in one moment, all or none:

    1. A newer gateway has asked for each resource of the pool, and the pool is idle. All are parked in that moment.
    2. All are given at once, and calls are passed on once the newer gateway serves the last one. If it doesn't serve
       all of them in time, all are taken back, as if nothing had happened.
    3. One after the other leaves: the newer gateway registers it. What has left waits for the rest of the pool, and a
       failure breaks all of them off, so that each begins again here.
    4. All are let go in one moment.

One pool at a time is handed over, because many Registers at once would wait for each other without a list at the
kubelet. A resource that ends here meanwhile ends the handover of its pool, but what has left is the newer gateway's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from dpgateway.deviceplugin.handover.older import LISTING, HandoverState, OlderSide
from dpgateway.deviceplugin.handover.protocol import ASK, POOR, HandoverBackoff
from dpgateway.deviceplugin.handover.proxy import Decided
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.kit.log import bind
from dpgateway.kit.seqpacket import Peer
from dpgateway.kit.tasks import wait_for

ASKING = 1.0
"""Seconds in which whoever dials says what it wants."""
SERVING = 2.0
"""Seconds that the newer gateway has to serve. Calls of the kubelet wait meanwhile."""
SERVING_EACH = 0.05
"""Seconds more for each further resource of the pool: it reads a journal and binds a socket for each of them."""
LINGER = 0.1
"""Seconds in which a kubelet may still call the older gateway, because it chose that before it knew the newer one."""

_log = bind(__name__)


class Coordinator:
    """One for all resources of a kubelet. Used from the event loop."""

    def __init__(self, together: Callable[[str], Sequence[str]], group: asyncio.TaskGroup) -> None:
        """``together``: this resource, and those of its pool that this gateway may serve. ``group``: for its tasks."""
        self._together, self._group = together, group
        self._asked: dict[str, OlderSide] = {}
        """Those for which a newer gateway has asked, and the rest of whose pool it hasn't asked for yet."""
        self._turn = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        """The handover of each resource that is being handed over, or waits for its turn."""
        self._kept: list[Endpoint] = []
        """Until the process ends."""
        self._backoffs: dict[str, HandoverBackoff] = {}

    def backoff(self, resource: str) -> HandoverBackoff:
        """Of handovers of the resource, in either role. They outlive its plugin."""
        return self._backoffs.setdefault(resource, HandoverBackoff())

    def asked(self, one: OlderSide, newer: Peer) -> None:
        """Another gateway dialled."""
        if one.ending:
            newer.close()
            return
        task = self._group.create_task(self._meet(one, newer), name=f"{one.name} newer gateway")
        task.add_done_callback(lambda _: newer.close() if one.newer is not newer else None)

    async def _meet(self, one: OlderSide, newer: Peer) -> None:
        """Begins the handover if this gateway asks for the last resource of the pool. Anybody else is hung up on."""
        try:
            async with asyncio.timeout(ASKING):
                wanted = await newer.receive()
        except (OSError, TimeoutError):
            return
        if wanted != ASK and not (wanted == POOR and not one.healthy):
            return
        # Newer gateways of the first releases ask again at once after a failure.
        if one.ending or one.over.done() or one.name in self._running or not self.backoff(one.name).due:
            return
        one.meet(newer)

        # A gateway that has asked and died since may never ask for the rest of its pool.
        self._asked[one.name] = one
        self._asked = {name: other for name, other in self._asked.items() if not other.forsaken}
        names = self._together(one.name)
        if self._asked.keys() >= set(names):
            pool = [self._asked.pop(name) for name in names]
            task = self._group.create_task(self._hand_over(pool), name=f"hand over {', '.join(names)}")
            self._running |= dict.fromkeys(names, task)
            task.add_done_callback(lambda _: self._handed_over(pool))

    def _handed_over(self, pool: Sequence[OlderSide]) -> None:
        for one in pool:
            self._running.pop(one.name, None)
            one.break_off()
            if one.frozen is not None:
                self._kept.append(one.frozen)

    async def _hand_over(self, pool: Sequence[OlderSide]) -> None:
        """Once it is the pool's turn, and nothing of it is under way."""
        begun = False
        while not begun:
            for one in pool:
                await one.settle()
            async with self._turn:
                if begun := all(one.idle for one in pool):
                    await self._hand_over_now(pool)

    async def _hand_over_now(self, pool: Sequence[OlderSide]) -> None:
        """All of them, or none. What is cancelled or fails here is broken off by :meth:`_handed_over`."""
        for one in pool:
            one.park()

        # No call is passed on before the whole pool is served: nothing has been given away, so all can be taken back.
        seconds, decided, failure = SERVING + SERVING_EACH * (len(pool) - 1), Decided(), ""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for one in pool:
                    group.create_task(one.give(), name=f"give {one.name}")
            for one in pool:
                one.pass_on(decided)
        except* OSError as errors:  # also TimeoutError
            failure = str(errors.exceptions[0]) or f"it hasn't served within {seconds:g} s"
        if failure:
            self._complain(pool, "so this one serves on", failure)
            for one in pool:
                await one.take_back()
            return

        # Each registers; what has registered waits for the rest of its pool.
        try:
            for one in pool:
                await one.leave()
        except OSError as error:  # also TimeoutError
            failure = str(error) or f"it hasn't registered within {LISTING:g} s"
            self._complain(pool, "so this one registers again", failure)
            return

        # Nothing is awaited here, so no resource of a pool is another gateway's before all are.
        for one in pool:
            self.backoff(one.name).succeeded()
            one.let_go()

    def _complain(self, pool: Sequence[OlderSide], consequence: str, failure: str) -> None:
        """Warns once for each cause, because a newer gateway may try again for hours."""
        news = [self.backoff(one.name).failed(failure) for one in pool]
        level = logging.WARNING if any(news) else logging.DEBUG
        names = ", ".join(one.name for one in pool)
        _log.log(level, "the gateway that takes %s over failed, %s: %s", names, consequence, failure)

    async def end(self, one: OlderSide, grace: float) -> None:
        """The resource ends here; a handover that has begun, within ``grace`` seconds. Calls that were passed on are
        answered.
        """
        one.begin_to_end()
        self._asked.pop(one.name, None)
        task = self._running.get(one.name)
        if task is not None and not one.over.done():  # else it ends nothing of the others
            if one.state is not HandoverState.SERVING:
                await asyncio.wait({task}, timeout=grace)
            task.cancel()
            await asyncio.wait({task})
        if one.state is HandoverState.GIVEN:
            await asyncio.sleep(LINGER)
            with contextlib.suppress(TimeoutError):
                await wait_for(one.settle(), grace)
        await one.end()

"""Hands over all resources of a kubelet, pool by pool: the older gateway's side (``protocol``, ``older``).

Theory of operation. The resources of a pool exclude each other's devices, so a pool is handed over atomically:

    1. Once one newer gateway has asked for each resource of the pool, and the pool is idle, all are parked in one
       moment. Another one that asks waits meanwhile.
    2. All are given at once, and calls are forwarded once the newer gateway serves the last one. If it doesn't serve
       all of them in time, all are taken back, as if nothing had happened.
    3. They leave one after the other: the newer gateway registers each. A resource that has left waits for the rest of
       the pool, and a failure breaks all of them off, so that each begins again here.
    4. All are let go in one moment.

One pool at a time is handed over, because concurrent Registers would wait for each other while the kubelet has no list
of theirs. A resource that ends here meanwhile ends the handover of its pool, but those that have left are the newer
gateway's.

``_asked`` has each newer gateway's requests for incomplete pools, ``_running`` the task of each pool's handover, by
resource, and ``_turn`` admits one of these tasks at a time.
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
from dpgateway.kit.seqpacket import Gone, Peer
from dpgateway.kit.tasks import wait_for

ASKING = 1.0
"""Timeout in seconds for a dialling gateway's first message."""
SERVING = 2.0
"""Timeout in seconds for the newer gateway to serve. Calls of the kubelet wait meanwhile."""
SERVING_EACH = 0.05
"""Seconds added for each further resource of the pool, whose journal is read and whose socket is bound."""
LINGER = 0.1
"""Seconds in which a kubelet may still call the older gateway, having chosen it before it knew the newer one."""

_log = bind(__name__)


class Coordinator:
    """The handovers of all resources of a kubelet. Used from the event loop."""

    def __init__(self, together: Callable[[str], Sequence[str]], group: asyncio.TaskGroup) -> None:
        """``together``: the resources of a resource's pool that this gateway may serve, itself included."""
        self._together, self._group = together, group
        self._asked: dict[str, dict[str, tuple[OlderSide, Peer, str]]] = {}
        """The requests of each newer gateway, by its process and the resource, while it hasn't asked for the rest of
        the pool.
        """
        self._turn = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        """The handover task of each resource that is being handed over, or waits for its turn."""
        self._kept: list[Endpoint] = []
        """Frozen endpoints, kept until the process ends."""
        self._backoffs: dict[str, HandoverBackoff] = {}

    def backoff(self, resource: str) -> HandoverBackoff:
        """The backoff of the resource's handovers, in either role. It outlives the plugin."""
        return self._backoffs.setdefault(resource, HandoverBackoff())

    def asked(self, one: OlderSide, newer: Peer) -> None:
        """Another gateway has dialled."""
        if one.ending:
            newer.close()
            return
        task = self._group.create_task(self._meet(one, newer), name=f"{one.name} newer gateway")
        task.add_done_callback(lambda met: newer.close() if met.cancelled() or not met.result() else None)

    async def _meet(self, one: OlderSide, newer: Peer) -> bool:
        """Reads the newer gateway's request, and begins the handover once it has asked for the whole pool. Returns
        whether ``newer`` is kept: a refused one isn't.
        """
        try:
            async with asyncio.timeout(ASKING):
                wanted = await newer.receive()
        except (OSError, TimeoutError):
            return False
        if wanted not in {ASK, POOR} or one.keeps_from(wanted):
            return False
        # The newer gateway's own backoff isn't relied on: those of the first releases ask again at once.
        if one.ending or one.over.done() or one.name in self._running or not self.backoff(one.name).due:
            return False

        # A gateway that asked and then died may never ask for the rest of the pool, or it asks once more.
        self._forget(lambda name, peer: peer.gone or (name == one.name and peer.process == newer.process))
        asked = self._asked.setdefault(newer.process, {})
        asked[one.name] = one, newer, wanted
        names = self._together(one.name)
        if asked.keys() >= set(names):
            pool = []
            for name in names:
                older, peer, said = asked.pop(name)
                older.meet(peer, said)
                pool.append(older)
            task = self._group.create_task(self._hand_over(pool), name=f"hand over {', '.join(names)}")
            self._running |= dict.fromkeys(names, task)
            task.add_done_callback(lambda _: self._handed_over(pool))
        return True

    def _forget(self, which: Callable[[str, Peer], bool]) -> None:
        """Refuses requests for incomplete pools. ``which``: by resource and peer."""
        for process, asked in list(self._asked.items()):
            for name, (_, peer, _) in list(asked.items()):
                if which(name, peer):
                    asked.pop(name)[1].close()
            if not asked:
                del self._asked[process]

    def _handed_over(self, pool: Sequence[OlderSide]) -> None:
        for one in pool:
            self._running.pop(one.name, None)
            one.break_off()
            if one.frozen is not None:
                self._kept.append(one.frozen)

    async def _hand_over(self, pool: Sequence[OlderSide]) -> None:
        """Waits for the pool's turn, and until the pool is idle."""
        # Settled outside the turn, so that a slow call of one pool doesn't delay another pool.
        begun = False
        while not begun:
            for one in pool:
                await one.settle()
            async with self._turn:
                # A device may have become healthy since; _handed_over hangs up, and the newer gateway asks again.
                if any(one.keeps_from(one.wanted) for one in pool):
                    return
                if begun := all(one.idle for one in pool):
                    await self._hand_over_now(pool)

    async def _hand_over_now(self, pool: Sequence[OlderSide]) -> None:
        """Hands over all of the pool, or nothing. :meth:`_handed_over` breaks off after a failure or a cancellation."""
        for one in pool:
            one.park()

        # No call is forwarded before the whole pool is served: until then nothing is decided there, so all of it can be
        # taken back.
        seconds, decided, failure = SERVING + SERVING_EACH * (len(pool) - 1), Decided(), ""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for one in pool:
                    group.create_task(one.give(), name=f"give {one.name}")
            # Two of a release that doesn't name its process may have asked at once, each for another part.
            takers = {one.endpoint.ownership.borrower for one in pool} - {""}
            if len(takers) > 1:
                raise Gone(f"each of {' and '.join(sorted(takers))} asked for a part of it")
            for one in pool:
                one.pass_on(decided)
        except* OSError as errors:  # also TimeoutError
            failure = str(errors.exceptions[0]) or f"it hasn't served within {seconds:g} s"
        if failure:
            self._complain(pool, "so this one serves on", failure)
            for one in pool:
                await one.take_back()
            return

        # One at a time; a resource that has registered waits for the rest of its pool.
        try:
            for one in pool:
                await one.leave()
            if any(one.forsaken for one in pool):
                raise Gone("it has let go of a part of it")
        except OSError as error:  # also TimeoutError
            failure = str(error) or f"it hasn't registered within {LISTING:g} s"
            self._complain(pool, "so this one registers again", failure)
            return

        # No await here: either all resources of the pool are the newer gateway's, or none.
        for one in pool:
            self.backoff(one.name).succeeded()
            one.let_go()

    def _complain(self, pool: Sequence[OlderSide], consequence: str, failure: str) -> None:
        """Warns once per cause, because a newer gateway may retry for hours."""
        news = [self.backoff(one.name).failed(failure) for one in pool]
        level = logging.WARNING if any(news) else logging.DEBUG
        names = ", ".join(one.name for one in pool)
        _log.log(level, "the gateway that takes %s over failed, %s: %s", names, consequence, failure)

    async def end(self, one: OlderSide, grace: float) -> None:
        """Ends the resource in this gateway. A running handover, and forwarded calls, get ``grace`` seconds each."""
        one.begin_to_end()
        self._forget(lambda name, _: name == one.name)
        task = self._running.get(one.name)
        if task is not None and not one.over.done():  # once over, the task is the rest of the pool's
            if one.state is not HandoverState.SERVING:
                await asyncio.wait({task}, timeout=grace)
            task.cancel()
            await asyncio.wait({task})
        if one.state is HandoverState.GIVEN:
            await asyncio.sleep(LINGER)
            with contextlib.suppress(TimeoutError):
                await wait_for(one.settle(), grace)
        await one.end()

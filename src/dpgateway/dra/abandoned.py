"""Claims that nobody ends, or not soon: they end here, as by Unprepare, once it is known that nothing uses them.

Theory of operation. Of a pod that is deleted by force while no kubelet runs, the next kubelet ends the containers, if
any run, and removes the directory within 2 s of their end; but it asks for the end of its claims after 60 s only
(reconcileLoop in pkg/kubelet/cm/dra/manager.go), while the scheduler has given the devices away. Of a pod that it
refuses when it starts it keeps the directory as well. A kubelet may also have lost its state. What is known:

    unused     the kubelet doesn't list the claim, and the directories of its pods are gone
    unlisted   it lists no pod of the pod's name, at two looks: its static pods are listed first
    over       a claim that was made for one pod isn't at the API server any more, so that pod is gone, too

An unused or unlisted claim is asked for at the API server. It ends if it is over; an unused one that has only lost its
devices there ends at a second look. None ends while the runtime, or the cgroups, say that a container of its pods may
run; nor, if nobody says so, before it is unused (``claims.staleness``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from dpgateway.cluster.errors import ClusterError
from dpgateway.cluster.server import ObjectKind
from dpgateway.dra.claims.records import ClaimRecord, Phase
from dpgateway.dra.claims.staleness import NodeEvidence, given_up, over, unlisted, unused
from dpgateway.dra.preparing import NodeClaims
from dpgateway.node.sandboxes import END_WITHIN


class AbandonedClaims:
    """Used from the event loop."""

    def __init__(self, claims: NodeClaims, doubtful: float, ending: float) -> None:
        """``doubtful``: seconds until a doubt is believed; ``ending``: for which the claim of a pod that is gone is
        taken for one that ends now.
        """
        self._claims, self._store, self._log = claims, claims.store, claims.parts.log
        self._doubtful, self._ending = doubtful, ending
        self.asked: dict[str, ClaimRecord] = {}
        """`asked` contains the records that looked abandoned at the last look, keyed by uid."""
        self.stale: dict[str, tuple[ClaimRecord, float]] = {}
        """`stale` contains the records that await a second look, and since when on the loop's clock, keyed by uid."""
        self.unsure = False
        """Whether pods weren't listed for the first time."""
        self._unused: dict[str, ClaimRecord] = {}
        """`_unused` contains the unused records of the last look, keyed by uid; `_unlisted` the unlisted ones."""
        self._unlisted: dict[str, ClaimRecord] = {}
        self._over: dict[str, float] = {}
        """`_over` contains since when a claim is known to be over, on the loop's clock, keyed by uid."""

    @property
    def urgent(self) -> bool:
        """Whether the pod of a claim is gone, or another front lists devices as the scheduler counts the pods of their
        claims (``use.counted``).
        """
        store = self._store
        given = (given for one in store.records.values() for given in one.given)
        return bool(self._over) or any(one.extended and one.resource not in store.offerings for one in given)

    def has_more(self, there: frozenset[str] | None) -> bool:
        """Whether a record has become unused since the last look. ``there``: the pods with a directory, by uid."""
        new = [one for uid, one in self._store.records.items() if self._unused.get(uid) is not one]
        return any(unused(one, NodeEvidence((), there)) for one in new)

    async def end(self, node: NodeEvidence) -> None:
        """Ends the records that were stale at two looks, or are certain to be. Raises GatewayError, OSError."""
        before, self.stale = self.stale, {}
        records, listed = self._store.records, self._unlisted
        self._unused = {uid: one for uid, one in records.items() if unused(one, node)}
        self._unlisted = {uid: one for uid, one in records.items() if unlisted(one, node)}
        self.unsure = bool(self._unlisted.keys() - listed.keys())
        self.asked = self._unused | {uid: one for uid, one in self._unlisted.items() if listed.get(uid) is one}

        certain, known, self._over = dict[str, tuple[ClaimRecord, str]](), self._over, {}
        now = asyncio.get_running_loop().time()
        answers, failed = await self._ask(known)
        for record in tuple(self.asked.values()):
            if record.uid not in answers:
                if record.uid in before:
                    self.stale[record.uid] = before[record.uid]
                continue
            found = answers[record.uid]
            if not (why := given_up(record, found, self._claims.driver)):
                continue
            if over(record, found):
                self._over[record.uid] = known.get(record.uid, now)
            elif record.uid not in self._unused:
                continue
            else:
                # It has to have been stale at an earlier look, too, long enough ago.
                looked = asyncio.get_running_loop().time()
                same, since = before.get(record.uid, (None, looked))
                if same is not record or looked - since < self._doubtful:
                    self.stale[record.uid] = record, since if same is record else looked
                    continue
            certain[record.uid] = record, why

        try:
            for uid in await self.end_all(certain):
                self.asked.pop(uid, None)
                self._over.pop(uid, None)
        finally:
            self._store.pods_gone(frozenset(uid for uid, since in self._over.items() if now - since >= self._ending))
        if failed is not None:  # only now: a claim that can't be asked for holds up the end of no other one
            raise failed

    async def _ask(self, known: Collection[str]) -> tuple[Mapping[str, Mapping[str, Any] | None], ClusterError | None]:
        """The claims of the `asked` records as the API server has them, by uid: None if there is none, as of those that
        are ``known`` to be over. Without those that it couldn't say; the first error.
        """
        answers, failed = dict[str, Mapping[str, Any] | None](), None
        server, loop = self._claims.parts.server, asyncio.get_running_loop()
        began = loop.time()
        for record in tuple(self.asked.values()):
            if record.uid in known:
                answers[record.uid] = None
            # A server that hangs is asked no more: what is known already ends first.
            elif failed is None or loop.time() - began < END_WITHIN:
                try:
                    answers[record.uid] = await server.get(ObjectKind.CLAIM, record.name, record.namespace)
                except ClusterError as error:
                    failed = failed or error
        return answers, failed

    async def end_all(self, certain: Mapping[str, tuple[ClaimRecord, str]]) -> tuple[str, ...]:
        """Ends these records, by uid, each for a reason, which is logged. Returns which of them have ended; the others
        go on by themselves: a driver that hangs in a release holds up no end that is found to be due later. Raises
        GatewayError, OSError.
        """
        calls = {uid: self._claims.lanes.call(uid, partial(self._end_one, *one)) for uid, one in certain.items()}
        if calls:
            await asyncio.wait(calls.values(), timeout=END_WITHIN)
        return tuple([uid for uid, call in calls.items() if call.done() and call.result()])

    async def _end_one(self, record: ClaimRecord, why: str) -> bool:
        """Unless something has happened to the claim since the look, or a container of its pods may run. Where nobody
        knows what runs, the directories of the pods tell.
        """
        if self._store.records.get(record.uid) is not record:
            return False
        if record.phase is not Phase.ENDING:
            running = await self._claims.running(frozenset(uid for uid, _ in record.pods))
            if running or (running is None and record.uid not in self._unused):
                return False
        await self._claims.ends.end(record)
        if why:
            self._log.warning("ended %s, because nobody else does: %s, and no pod here uses it", record, why)
        return True

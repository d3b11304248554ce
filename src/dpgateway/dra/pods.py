"""The pods of claims, which come and go while a claim is prepared: of neither the kubelet tells.

Theory of operation. The kubelet prepares a claim for its first pod, not for each; it lists names, and the next pod of a
StatefulSet has the name of the one before: that has no directory any more. Pods that are gone are forgotten: those of a
CronJob may share a claim for years. What is noted decides when an abandoned claim is unused (``abandoned``).

A kubelet makes a pod's directory (syncPod in pkg/kubelet/kubelet.go), then reads the claim and refuses it to a pod for
which it isn't reserved (prepareResources in pkg/kubelet/cm/dra/manager.go), and removes the directory after the
containers. So a pod without reservation that has no directory later has no container, now or soon.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from dpgateway.cluster.server import ObjectKind
from dpgateway.dra.claims.reading import Asked, allocated
from dpgateway.dra.claims.records import ClaimRecord, Phase
from dpgateway.dra.preparing import NodeClaims
from dpgateway.errors import GatewayError, RequestError
from dpgateway.node.podresources import ListedClaim
from dpgateway.node.sandboxes import END_WITHIN


class ClaimPods:
    """Used from the event loop."""

    def __init__(self, claims: NodeClaims, seen: Callable[[], frozenset[str] | None]) -> None:
        """``seen``: the uids of the pods that have a directory; None if that can't be seen. It blocks."""
        self._claims, self._store, self._seen = claims, claims.store, seen

    async def follow(
        self, listed: Mapping[tuple[str, str], ListedClaim], directories: frozenset[str] | None
    ) -> Exception | None:
        """Notes the pods that claims have got since they were prepared, and forgets those that are gone. ``listed``:
        the kubelet's claims, by namespace and name. Returns the first error.
        """
        began, failed = asyncio.get_running_loop().time(), None
        for record in tuple(self._store.records.values()):
            one = listed.get((record.namespace, record.name))
            there = [(uid, name) for uid, name in record.pods if directories is None or uid in directories]
            news = one is not None and not one.pods <= {name for _, name in there}
            if one is None or record.phase is Phase.ENDING or not (news or len(there) < len(record.pods)):
                continue
            try:
                await self._follow_one(record)
            except (GatewayError, OSError) as error:
                failed = failed or error
                if asyncio.get_running_loop().time() - began > END_WITHIN:  # it hangs: claims wait for their end
                    break
        return failed

    async def _follow_one(self, record: ClaimRecord) -> None:
        """Raises GatewayError, OSError."""
        found = await self._claims.parts.server.get(ObjectKind.CLAIM, record.name, record.namespace)
        with contextlib.suppress(RequestError):
            now = allocated(found, self._claims.driver, Asked(record.namespace, record.name, record.uid))
            gone = await self._gone(record, frozenset(uid for uid, _ in now.pods))
            left = [(uid, name) for uid, name in record.pods if uid not in gone]
            # Without any pod nothing would tell that the claim is used.
            pods = tuple(dict.fromkeys((*left, *now.pods))) or record.pods
            await asyncio.shield(self._claims.lanes.call(record.uid, partial(self._note, record, pods)))

    async def _gone(self, record: ClaimRecord, reserved: frozenset[str]) -> frozenset[str]:
        """The pods of a record, by uid, that are gone for ever. ``reserved``: those that may use the claim, as the API
        server has just said. Raises GatewayError.
        """
        there = await self._store.disk.run(self._seen)
        gone = frozenset(uid for uid, _ in record.pods) - reserved
        if there is None or not (gone := gone - there):
            return frozenset()
        return gone - (await self._claims.running(gone) or frozenset())

    async def _note(self, record: ClaimRecord, pods: tuple[tuple[str, str], ...]) -> None:
        # Also after an answer from the record: that is news only for who would end the claim.
        if self._store.records.get(record.uid) == record and pods != record.pods:
            await self._store.write(replace(record, pods=pods))

"""What a Prepare waits for: the API server, resources that are going to be served, and devices that aren't free yet.

The kubelet asks again only 45 to 85 s after a refusal (seen on 1.37), and waits 45 s for an answer. So a call waits up
to PATIENCE for what may come: a server or a driver may have just started, and of a pod that was deleted by force the
scheduler gives a device away before its claim has ended. A gateway that another one has asked for the claims doesn't
wait for servers and drivers: that one may have them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from dpgateway.cluster.errors import UNAUTHORIZED, ClusterError
from dpgateway.cluster.server import ApiServer, Object, ObjectKind
from dpgateway.dra.claims.choosing import NotYet, chosen, same
from dpgateway.dra.claims.reading import Allocated, Asked
from dpgateway.dra.claims.records import ClaimRecord, Given
from dpgateway.dra.claims.store import ClaimStore
from dpgateway.errors import RequestError

PATIENCE = 40.0
"""Seconds that a call waits. The kubelet waits 45 (pkg/kubelet/cm/dra/plugin)."""
AGAIN = 0.5
"""Seconds until an API server that doesn't accept the account is asked again."""


class ClaimWaits:
    """Used from the event loop."""

    def __init__(self, store: ClaimStore, server: ApiServer, patience: float) -> None:
        self._store, self._server, self._patience = store, server, patience
        self.asked = self._ends = False
        """Whether another gateway has asked for the claims; whether this gateway was told to end."""
        self.gone: Callable[[str], str] = lambda _: ""
        """Why the devices of a pool aren't offered by DRA any more, and what to do; empty if they are."""

    def ask(self, *, asked: bool) -> None:
        """Another gateway has asked for the claims, or is refused."""
        self.asked = asked
        self._store.served.notify()

    def end(self) -> None:
        """This gateway is told to end."""
        self._ends = True
        self._store.served.notify()

    async def read(self, asked: Asked) -> Object | None:
        """The claim at the API server; None if it isn't there. A server that has just started may know no accounts yet,
        so it is asked again; but the pod of a gateway that ends may be gone, and with it its account. Raises
        GatewayError.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        while True:
            version = self._store.served.version
            try:
                return await self._server.get(ObjectKind.CLAIM, asked.name, asked.namespace, patience=end - loop.time())
            except ClusterError as error:
                if error.status != UNAUTHORIZED or loop.time() >= end:
                    raise
                if self._ends or self.asked:
                    text = (
                        f"claim {asked.namespace}/{asked.name}: this gateway is ending and may not read claims any "
                        "more, as when its pod was deleted by force; once the kubelet asks again, the next gateway "
                        f"answers: {error}"
                    )
                    raise RequestError(text) from error
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN):
                    await self._store.served.wait(version)

    async def devices(self, wanted: Allocated, record: ClaimRecord | None) -> tuple[Given, ...] | None:
        """The ids for each request of the claim, once it can have them. What it had before the node's boot, or in an
        attempt that failed, as its ``record`` says, it has again, wherever that is served now. None if the claim has
        another record by then. Raises RequestError.
        """
        store, end = self._store, asyncio.get_running_loop().time() + self._patience
        if record is not None and same(record.given, wanted):
            while unserved := next((one.resource for one in record.given if not store.serves(one.resource)), ""):
                refusal = RequestError(f"{wanted}: {unserved} isn't served yet")
                if self.asked:
                    raise refusal
                try:
                    async with asyncio.timeout_at(end):
                        await store.served.wait(store.served.version)
                except TimeoutError:
                    raise refusal from None
            return record.given
        for one in wanted.results:
            if why := self.gone(one.pool):
                raise RequestError(f"{wanted}: {why}")
        while store.records.get(wanted.uid) is record:
            try:
                # A device of no resource that is served may be one of a resource that is going to be.
                missing, served = store.expected - store.offerings.keys(), store.offerings.values()
                places = [(one.pool, one.device) for one in wanted.results] if missing else []
                if any(all(it.id_of(*place) is None for it in served) for place in places):
                    raise NotYet(f"{wanted}: {', '.join(sorted(missing))} isn't served yet", store.served)
                # Monitors get nothing that another claim may have.
                if (doubt := store.doubts.why_not(wanted.uid)) and not all(one.admin for one in wanted.results):
                    raise NotYet(f"{wanted}: {doubt}", store.doubts.why)
                had, before = wanted.uid in store.doubts.damaged, () if record is None else record.given
                return chosen(wanted, store.offerings, had=had, before=before)
            except NotYet as error:
                try:
                    async with asyncio.timeout_at(end):
                        await error.news.wait(error.news.version)
                except TimeoutError:
                    raise error from None
        return None

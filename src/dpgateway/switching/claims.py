"""The claims that are allocated to devices of a pool and not prepared yet, while the pool leaves DRA.

The claims of the cluster are listed once for all pools of a node: a DeviceClass that goes takes all nodes off DRA in
the same second, each with all of its groups. From then on the records of claims tell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from dpgateway.cluster.server import ApiServer, Object, ObjectKind
from dpgateway.dra.claims.records import Phase
from dpgateway.dra.claims.store import ClaimStore
from dpgateway.errors import GatewayError
from dpgateway.switching.switch import LIST_AGAIN


@dataclass(frozen=True, slots=True)
class _Listed:
    """A list of the claims of the cluster, or its failure."""

    began: float
    """In seconds of the monotonic clock."""
    claims: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    """`claims` contains namespace and name of each claim, and its pools, keyed by uid."""
    error: GatewayError | None = None


class AllocatedClaims:
    """Used from the event loop."""

    def __init__(self, server: ApiServer, driver: str, store: ClaimStore) -> None:
        self._server, self._driver, self._store = server, driver, store
        self._listing = asyncio.Lock()
        """Held while the claims are listed."""
        self._listed = _Listed(float("-inf"))
        self._allocated: dict[str, Mapping[str, str]] = {}
        """`_allocated` contains the claims of each pool that may have to be prepared yet, keyed by uid."""

    async def pending(self, pool: str, pools: Callable[[], Collection[str]], since: float) -> Collection[str]:
        """Namespace and name of each. ``pools``: those of all groups, which are listed together; asked as a list
        begins, because a reload may add one meanwhile. A list that began before ``since``, in seconds of the monotonic
        clock, may lack some. Raises GatewayError.
        """
        if pool not in self._allocated:
            async with self._listing:
                before = self._listed
                late = before.error is not None and time.monotonic() - before.began >= LIST_AGAIN / 2
                if before.began < since or late:
                    self._listed = await self._list({pool, *pools()})
            if self._listed.error is not None:
                raise self._listed.error
            self._allocated[pool] = {uid: text for uid, (text, some) in self._listed.claims.items() if pool in some}
        records, found = self._store.records, self._allocated[pool]
        some = {uid: text for uid, text in found.items() if uid not in records or records[uid].phase is Phase.PREPARING}
        self._allocated[pool] = some
        return some.values()

    def keep(self, leaving: Collection[str]) -> None:
        """Forgets the claims of all pools but those that are ``leaving`` DRA."""
        self._allocated = {pool: some for pool, some in self._allocated.items() if pool in leaving}
        if not leaving:
            self._listed = _Listed(float("-inf"))

    async def _list(self, pools: Collection[str]) -> _Listed:
        began, ours = time.monotonic(), partial(_pools, self._driver, pools)
        try:
            found = await self._server.list(ObjectKind.CLAIM, {}, lambda one: bool(ours(one)))
        except GatewayError as error:
            return _Listed(began, error=error)
        claims = {}
        for one in found.objects:
            meta = one["metadata"]
            claims[str(meta.get("uid"))] = f"{meta.get('namespace')}/{meta['name']}", ours(one)
        return _Listed(began, claims)


def _pools(driver: str, pools: Collection[str], claim: Object) -> frozenset[str]:
    """The driver's ``pools`` from which the claim has devices."""
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    return frozenset(one["pool"] for one in devices.get("results") or () if one["driver"] == driver).intersection(pools)

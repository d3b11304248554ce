"""What drivers owe for claims without a record, of resources that another front offers by now.

A record may be damaged, removed by a person, or lost with its disk; then only the resource's journal knows what its
claim had. The present driver of the resource releases that, and until it is told to nobody gets it. Once the journal of
that front has it, or no driver can release it, it is struck from the one of this front: else it would be released, or
told of, again after each start.
"""

from __future__ import annotations

from collections.abc import Collection

from dpgateway.dra.claims.holdings import debts
from dpgateway.dra.claims.store import ClaimStore
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import first
from dpgateway.resource.orphans import leak
from dpgateway.resource.resource import Common

LOOK = 1.0
"""Seconds between two looks whether a driver runs on another front, and its journal is written."""

_log = bind(__name__)


class LeftDebts:
    """Used from the event loop."""

    def __init__(self, store: ClaimStore, common: Common) -> None:
        """``common``: with this front's name."""
        self._store, self._common = store, common

    async def run(self) -> None:
        """Never returns."""
        store, common = self._store, self._common
        while True:
            served, left = store.served.version, common.pools.left.version
            waits = self._owe()
            for (uid, name), told in tuple(store.told.items()):
                ids = [id_ for id_, noted in told.items() if noted]
                if ids and not uid and name in common.pools.configs and not store.is_here(name):
                    waits = not await self._strike(name, ids, told) or waits
            await first(store.served.wait(served), common.pools.left.wait(left), within=LOOK if waits else None)

    def _owe(self) -> bool:
        """Has other fronts' drivers release what is free and in no record. Returns whether some don't run yet."""
        store, waits = self._store, False
        for name, in_use in tuple(self._common.pools.left.value.items()):
            told = store.told.setdefault(("", name), {})
            for id_ in () if name in store.expected else debts(name, in_use, store.records.values()) - told.keys():
                answer = store.owe(name, id_, in_use.unreleased[id_])
                waits = waits or answer is None
                if answer is not None:
                    told[id_] = True
                if answer is False:
                    leak(_log, name, in_use, id_, "the resource isn't offered by DRA any more")
        store.tell(())
        return waits

    async def _strike(self, resource: str, ids: Collection[str], told: dict[str, bool]) -> bool:
        """Returns whether the other front's journal has what of these ids it owes; then this front's loses them."""
        common = self._common
        if not await common.served.record(resource):
            return False
        await common.pools.journals.strike(resource, ids, lambda: not self._store.is_here(resource), common.front)
        told |= dict.fromkeys(ids, False)
        if self._store.told.get(("", resource)) is told:  # else it was here meanwhile
            usage = self._store.by_resource[resource]
            usage.set(usage.value.released(ids))
        return True

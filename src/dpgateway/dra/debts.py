"""What drivers owe for claims without a record, of resources that another front offers by now.

A record may be damaged, removed by a person, or lost with its disk; then only the resource's journal knows what its
claim had. The present driver of the resource releases that, and until it is told to nobody gets it.
"""

from __future__ import annotations

from dpgateway.dra.claims.holdings import debts
from dpgateway.dra.claims.store import ClaimStore
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import first
from dpgateway.resource.orphans import leak
from dpgateway.resource.resource import Common

LOOK = 1.0
"""Seconds between two looks whether a driver runs on another front."""

_log = bind(__name__)


class LeftDebts:
    """Used from the event loop."""

    def __init__(self, store: ClaimStore, common: Common) -> None:
        """``common``: with this front's name."""
        self._store, self._common = store, common

    async def run(self) -> None:
        """Never returns."""
        store, left = self._store, self._common.pools.left
        while True:
            served, version = store.served.version, left.version
            waits = self._owe()
            await first(store.served.wait(served), left.wait(version), within=LOOK if waits else None)

    def _owe(self) -> bool:
        """Has other fronts' drivers release what is free and in no record. Returns whether some don't run yet."""
        store, waits = self._store, False
        for name, in_use in tuple(self._common.pools.left.value.items()):
            told = store.told.setdefault(("", name), {})
            for id_ in () if name in store.expected else debts(name, in_use, store.records.values()) - told.keys():
                answer = store.owe(name, id_, in_use.unreleased[id_])
                waits = waits or answer is None
                if answer is not None:
                    told[id_] = answer
                if answer is False:
                    leak(_log, name, in_use, id_, "the resource isn't offered by DRA any more")
        store.tell(())
        return waits

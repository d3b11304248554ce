"""Ends claims: their devices are released to the drivers, then their records are forgotten.

The pod isn't terminal before Unprepare is answered, and the scheduler gives the device away 20 ms later (seen on 1.37).
So a call waits until the driver has released the devices, or for PATIENCE, with the devices withheld: a driver that
hangs must not keep pods from ending.
"""

from __future__ import annotations

import asyncio
import logging

from dpgateway.dra.claims.records import ClaimRecord, Given, Phase
from dpgateway.dra.claims.store import ClaimStore


class ClaimEnds:
    """The ends of claims. Used from the event loop."""

    def __init__(
        self, store: ClaimStore, boot: str, patience: float, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self._store, self._boot, self._patience, self._log = store, boot, patience, log
        self._endings: set[asyncio.Task[None]] = set()
        """The ends that wait for a driver; kept, because the event loop keeps no tasks."""

    async def end(self, record: ClaimRecord) -> None:
        """Returns once the claim has ended, or after the patience: the rest doesn't depend on the caller, because the
        kubelet asks no more once it has its answer. Raises RequestError if the end can't be recorded.
        """
        await self._store.write(record.at(Phase.ENDING, self._boot))
        ending = asyncio.create_task(self._end(record), name=f"end of {record}")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        if not (await asyncio.wait({ending}, timeout=self._patience))[0]:
            text = "%s ends, but the driver hasn't released its devices for %.0f s: they stay withheld until it has"
            self._log.warning(text, record, self._patience)

    async def _end(self, record: ClaimRecord) -> None:
        """Forgets the claim once its devices are released."""
        await asyncio.gather(*map(self._released, record.given))
        await self._store.forget(record)
        self._log.info("unprepared %s", record)

    async def _released(self, one: Given) -> None:
        """Returns once the driver was told that these devices are free; at once if there is no resource to tell."""
        if (offering := self._store.offerings.get(one.resource)) is not None:
            await offering.usage.wait_for(lambda in_use: in_use.freed.isdisjoint(one.ids))

"""ListAndWatch: the inventory of one resource, in the bytes of each API.

A stream is bound to its own context and ends with it, or when the server says so. It owns nothing but the version that
it sent last. The bytes of a list are made once per version, for all streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from types import MappingProxyType

from dpgateway.deviceplugin.api import Api, ListEncoder
from dpgateway.deviceplugin.offer.inventory import Inventory, Snapshot
from dpgateway.deviceplugin.server.pace import Pace
from dpgateway.model import Health

_ENDING = Health.unhealthy("about to be listed")


class Lists:
    """The lists of one resource."""

    def __init__(
        self, inventory: Inventory, pace: Pace, encoders: Mapping[str, ListEncoder] = MappingProxyType({})
    ) -> None:
        """``encoders``: by API, those that know the list already."""
        self._inventory, self._pace = inventory, pace
        self._encoders = dict(encoders)
        self._encoded: dict[str, tuple[int, bytes]] = {}

    def encode(self, api: Api, snapshot: Snapshot) -> bytes:
        """The list's bytes, made once per version."""
        version, encoded = self._encoded.get(api.name, (0, b""))
        if version != snapshot.version:
            if api.name not in self._encoders:
                self._encoders[api.name] = ListEncoder(api)
            encoded = self._encoders[api.name].encode(snapshot.offers.values())
            self._encoded[api.name] = (snapshot.version, encoded)
        return encoded

    def make_ready(self, api: Api) -> None:
        """Makes the bytes of the list of now, so that the next stream of this API needn't wait for them."""
        if self._inventory.current is not None:
            self.encode(api, self._inventory.current)

    @staticmethod
    def encode_unhealthy(api: Api, snapshot: Snapshot) -> bytes:
        """The same list, with every id Unhealthy."""
        return ListEncoder(api).encode(replace(offer, health=_ENDING) for offer in snapshot.offers.values())

    async def watch(self, api: Api, agent: str, ended: asyncio.Event) -> AsyncGenerator[bytes, None]:
        """Each newer list until ``ended``, the full one first; a slow reader skips to the newest."""
        version = 0
        while (snapshot := await self._next(version, api, ended)) is not None:
            if version == 0 and agent.startswith(api.forgetful):
                yield self.encode_unhealthy(api, snapshot)
            version = snapshot.version
            yield self.encode(api, snapshot)

    async def _next(self, version: int, api: Api, ended: asyncio.Event) -> Snapshot | None:
        """The list after ``version`` when it is its turn; None once ``ended``."""
        newest = self._inventory.current
        if newest is not None and newest.version > version and not api.pause and not ended.is_set():
            return newest
        waiting = asyncio.ensure_future(self._turn(version, api)), asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return None if ended.is_set() else self._inventory.current
        finally:
            for task in waiting:
                task.cancel()

    async def _turn(self, version: int, api: Api) -> None:
        await self._inventory.newer(version)
        await self._pace.turn(api.pause)

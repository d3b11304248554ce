"""ListAndWatch: the list of one resource, in the bytes of each API.

A stream is bound to its own context and ends with it, or when the server says so. It owns nothing but the version that
it sent last. The bytes of a list are made once per version, for all streams.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from dpgateway.deviceplugin.api import Api, ListEncoder
from dpgateway.deviceplugin.server.throttle import Pace
from dpgateway.kit.observable import Observable
from dpgateway.model import Health
from dpgateway.resource.offers import Offers

_ENDING = Health.unhealthy("about to be listed")


class End:
    """The end of one stream, said by the server."""

    def __init__(self) -> None:
        self.said = False
        self._waits: asyncio.Timeout | None = None

    def say(self) -> None:
        if self._waits is not None and not self.said:
            self._waits.reschedule(asyncio.get_running_loop().time())
        self.said = True

    @contextlib.asynccontextmanager
    async def interrupts(self) -> AsyncGenerator[None, None]:
        """What is awaited within ends early once the end is said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self.said else None) as self._waits:
                yield
        self._waits = None


class Lists:
    """The lists of one resource."""

    def __init__(self, listed: Observable[Offers | None], pace: Pace) -> None:
        self._list, self._pace = listed, pace
        self._encoders: dict[str, ListEncoder] = {}
        self._encoded: dict[str, tuple[int, bytes]] = {}
        self.hushed = False
        """Whether nothing more is sent."""

    def encode(self, api: Api) -> bytes:
        """The bytes of the current list, made once per version."""
        version, encoded = self._encoded.get(api.name, (0, b""))
        if version != self._list.version and self._list.value is not None:
            encoder = self._encoders.setdefault(api.name, ListEncoder(api))
            encoded = encoder.encode(self._list.value)
            self._encoded[api.name] = (self._list.version, encoded)
        return encoded

    def encode_unhealthy(self, api: Api) -> bytes:
        """The same list, with every id Unhealthy."""
        offers = self._list.value or {}
        return ListEncoder(api).encode({id_: replace(offer, health=_ENDING) for id_, offer in offers.items()})

    async def watch(self, api: Api, forgets: bool, end: End, sent: Callable[[], None]) -> AsyncGenerator[bytes, None]:
        """Each newer list until the ``end`` is said, the full one first; a slow reader skips to the newest.

        ``forgets``: the kubelet would take the list for no change, although it counts each id as Unhealthy by now.
        ``sent`` is called when another message is asked for after a list, because the list is sent then.
        """
        version = 0
        while await self._is_next(version, api, end):
            if version == 0 and forgets:
                yield self.encode_unhealthy(api)
            version = self._list.version
            yield self.encode(api)
            sent()

    async def _is_next(self, version: int, api: Api, end: End) -> bool:
        """Returns when it is the turn of a list after ``version``; False once the end is said."""
        async with end.interrupts():
            await self._list.wait(version)
            await self._pace.turn(api.pause, writes=api.writes)
            if self.hushed:
                await asyncio.get_running_loop().create_future()  # until the end is said
        return not end.said

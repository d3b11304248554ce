"""ListAndWatch: streams of one resource's list, encoded for each API.

Theory of operation
    - A stream ends with its gRPC context, or by its ``End``. Its only state is the version of the list sent last, so a
      slow reader skips to the newest list.
    - A list is encoded once per version and API, for all streams.
    - Kubelets 1.8 and 1.9 can't take two lists at once (``api.v1alpha2.PAUSE``): there each list first takes its turn
      at the throttle, which all resources share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from dpgateway.deviceplugin.api import Api
from dpgateway.kit.observable import Observable, Signal
from dpgateway.model import Health, changed
from dpgateway.resource.shares import Offers

WRITE_WITHIN = 0.3
"""Timeout in seconds for a kubelet's checkpoint write; then the next list is sent without it."""

_NOT_YET = Health.unhealthy("about to be listed")


class ListThrottle:
    """Serializes lists to a kubelet that can't take many at once. One for all resources of a kubelet."""

    def __init__(self, written: Signal) -> None:
        """``written``: the kubelet may have written its checkpoint."""
        self._written, self._turns = written, asyncio.Lock()
        self._next = 0.0
        self._sent = -1
        """The version of ``written`` at the last list."""
        self._blind = False
        """Set when no checkpoint write was seen in time; the directory watch may be blind, so don't wait for it."""

    async def turn(self, pause: float, *, writes: bool = False) -> None:
        """Waits for a turn; the next one comes ``pause`` seconds later.

        ``writes``: the kubelet writes its checkpoint for each list, so this turn also waits for the last list's write.
        """
        async with self._turns:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._next - loop.time())
            # A write since the last list shows that the directory watch works, and that the list was stored.
            if self._written.version > self._sent:
                self._blind = False
            elif writes and not self._blind:
                try:
                    async with asyncio.timeout(WRITE_WITHIN):
                        await self._written.wait(self._sent)
                except TimeoutError:
                    self._blind = True
            self._sent = self._written.version
            self._next = loop.time() + pause


class End:
    """The server's request to end one stream."""

    def __init__(self) -> None:
        self.said = False
        self._waits: asyncio.Timeout | None = None

    def say(self) -> None:
        if self._waits is not None and not self.said:
            self._waits.reschedule(asyncio.get_running_loop().time())
        self.said = True

    @contextlib.asynccontextmanager
    async def interrupts(self) -> AsyncGenerator[None, None]:
        """Cancels the await inside it once the end is said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self.said else None) as self._waits:
                yield
        self._waits = None


class ListEncoder:
    """Encodes a resource's list for one version, and only the ids that changed since the last list."""

    def __init__(self, api: Api) -> None:
        self._to_offer = api.to_offer
        self._offers: Offers = {}
        self._pieces: dict[str, bytes] = {}

    def encode(self, offers: Offers) -> bytes:
        """The bytes of the whole list; caches its pieces for the next call.

        An unchanged set of ids keeps its first order.
        """
        new = changed(self._offers, offers)
        kept = self._pieces
        if list(kept) != list(offers) and kept.keys() != offers.keys():
            kept = {id_: kept.get(id_, b"") for id_ in offers}
        for id_ in new:
            kept[id_] = self._to_offer(offers[id_])
        self._offers, self._pieces = offers, kept
        return b"".join(kept.values())


class Lists:
    """The lists of one resource."""

    def __init__(self, listed: Observable[Offers | None], throttle: ListThrottle) -> None:
        self._list, self._throttle = listed, throttle
        self._encoders: dict[str, ListEncoder] = {}
        self._encoded: dict[str, tuple[int, bytes]] = {}
        self._hushed = False

    def hush(self) -> None:
        """Sends no more lists; the streams stay open."""
        self._hushed = True

    def encode(self, api: Api) -> bytes:
        """The current list, encoded; cached by version."""
        version, encoded = self._encoded.get(api.name, (0, b""))
        if version != self._list.version and self._list.value is not None:
            if (encoder := self._encoders.get(api.name)) is None:
                encoder = self._encoders[api.name] = ListEncoder(api)
            encoded = encoder.encode(self._list.value)
            self._encoded[api.name] = (self._list.version, encoded)
        return encoded

    async def watch(self, api: Api, forgets: bool, end: End, listed: Callable[[], None]) -> AsyncGenerator[bytes, None]:
        """Each newer list until the ``end`` is said, the full one first; a slow reader skips to the newest.

        ``forgets``: sends every id Unhealthy first, to a kubelet that would take the list for no change
        (``Api.forgetful``). ``listed`` is called once the first list is sent, when gRPC asks for the next message.
        """
        version, first = 0, True
        while True:
            # The next list, in its turn; or the end, whichever comes first.
            async with end.interrupts():
                await self._list.wait(version)
                if api.pause:
                    await self._throttle.turn(api.pause, writes=api.writes)
                if self._hushed:
                    await asyncio.get_running_loop().create_future()  # until the end is said
            if end.said:
                return

            if first and forgets:
                offers = self._list.value or {}
                yield ListEncoder(api).encode({i: replace(one, health=_NOT_YET) for i, one in offers.items()})
            version = self._list.version
            yield self.encode(api)
            if first:
                listed()
            first = False

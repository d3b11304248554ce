"""Whoever stands between two gateways, and passes on what they say to each other in a handover."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from dpgateway.kit.seqpacket import Listener, Peer
from tests.support.waiting import until

Heard = Callable[[str, str], Awaitable[None]]


class Between:
    """Of one resource, whose older gateway serves already."""

    def __init__(self, device_plugins: Path, resource: str, heard: Heard) -> None:
        """``heard`` is awaited with who said it (older, newer), and the first word, before that is passed on."""
        name = hashlib.sha256(resource.encode()).hexdigest()[:16]
        self._path = device_plugins / f"dpgateway/{name}.next"
        self._older = self._path.with_suffix(".older")
        self._heard = heard
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await until(self._path.exists)  # a gateway makes it last
        self._path.rename(self._older)
        self._listener = Listener(self._path, self._met)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._older.unlink()

    def _met(self, newer: Peer) -> None:
        try:
            older = Peer.dial(self._older)
        except OSError:  # it has ended
            newer.close()
            return
        task = asyncio.create_task(self._talk(newer, older), name="what two gateways say")
        self._tasks.add(task)
        task.add_done_callback(lambda _: newer.close())
        task.add_done_callback(lambda _: older.close())

    async def _talk(self, newer: Peer, older: Peer) -> None:
        """Until one of them ends."""
        passing = [
            asyncio.create_task(self._pass("newer", newer, older), name="what the newer one says"),
            asyncio.create_task(self._pass("older", older, newer), name="what the older one says"),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in passing:
                task.cancel()
            await asyncio.wait(passing)

    async def _pass(self, who: str, one: Peer, other: Peer) -> None:
        with contextlib.suppress(OSError):  # one of them has ended
            while True:
                text = await one.receive()
                descriptors = one.take_descriptors()
                try:
                    await self._heard(who, text.partition(" ")[0])
                    other.send(text, *descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)

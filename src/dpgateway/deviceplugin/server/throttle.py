"""Lists one after another, for kubelets that can't take them at once."""

from __future__ import annotations

import asyncio

WRITING = 0.3
"""Seconds that a kubelet has to write its checkpoint, before the next list is sent all the same."""


class Pace:
    """One for all resources of a kubelet. Used from the event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Lock()
        self._next = 0.0
        self._written = asyncio.Event()
        self._written.set()
        self._deaf = False
        """Whether a kubelet that writes its checkpoint for each list wasn't seen to do so. Perhaps nothing is seen."""

    def wrote(self) -> None:
        """The kubelet has written its checkpoint."""
        self._written.set()
        self._deaf = False

    async def turn(self, pause: float, *, writes: bool = False) -> None:
        """Waits for a turn, after which nobody else has one for ``pause`` seconds. Returns at once if that is 0.

        ``writes``: the kubelet writes its checkpoint for each list, so nobody else has one before that, either.
        """
        if not pause:
            return
        async with self._turns:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._next - loop.time())
            if writes and not self._deaf:
                await self._until_written()
            self._written.clear()
            self._next = loop.time() + pause

    async def _until_written(self) -> None:
        try:
            async with asyncio.timeout(WRITING):
                await self._written.wait()
        except TimeoutError:
            self._deaf = True

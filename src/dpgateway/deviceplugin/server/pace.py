"""Lists one after another, for kubelets that can't take them at once."""

from __future__ import annotations

import asyncio


class Pace:
    """One for all resources of a kubelet. Used from the event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Lock()
        self._next = 0.0

    async def turn(self, pause: float) -> None:
        """Waits for a turn, after which nobody else has one for ``pause`` seconds. Returns at once if that is 0."""
        if not pause:
            return
        async with self._turns:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._next - loop.time())
            self._next = loop.time() + pause

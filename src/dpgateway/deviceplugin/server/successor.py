"""Whoever answers the calls of a kubelet after the gateway that the kubelet is connected to: a newer gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpgateway.process import unix

_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]


class Successor:
    """Used from the event loop. Calls wait until it is known whether it serves."""

    def __init__(self) -> None:
        self._serves = asyncio.get_running_loop().create_future()
        self._alone = False
        self._address: unix.Address | None = None
        self._channel: Any = None

    def serves(self, socket: Path) -> None:
        """From now on it answers there. Raises OSError."""
        self._address = unix.Address(socket)
        self._channel = grpc.aio.insecure_channel(str(self._address), options=_OPTIONS)
        self._serves.set_result(True)

    def owns(self) -> None:
        """From now on the lock is its own, so nobody else may answer."""
        self._alone = True

    async def answer(self, path: str, raw: bytes, seconds: float) -> bytes | None:
        """None: it doesn't answer any more, so the older gateway must. Raises AioRpcError as the kubelet should see it,
        also if it doesn't answer, and the older gateway may not either; TimeoutError if nobody knows what it does.

        ``path``: of the RPC, as gRPC names it. ``seconds``: that it has once it serves.
        """
        if not await asyncio.shield(self._serves):
            return None
        try:
            async with asyncio.timeout(seconds):
                answer: bytes = await self._channel.unary_unary(path)(raw)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and not self._alone:
                return None
            raise
        return answer

    async def end(self) -> None:
        """It serves no more, or nobody asks it any more."""
        if not self._serves.done():
            self._serves.set_result(False)
        if self._channel is not None:
            await self._channel.close()
        if self._address is not None:
            self._address.close()

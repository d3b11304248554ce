"""Whoever answers the calls of a kubelet after the gateway that the kubelet is connected to: a newer gateway."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpgateway.kit import unix

_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]


@dataclass
class Decided:
    """Whether a newer gateway may have given something away, as any of the resources that were handed to it at once.

    Its journal has that 50 ms later, so from then on only a gateway that reads it may decide.
    """

    yes: bool = False


class Successor:
    """Used from the event loop. Calls wait until it is known whether it serves."""

    def __init__(self) -> None:
        self._serves = asyncio.get_running_loop().create_future()
        self._decided = Decided()
        self._address: unix.Address | None = None
        self._channel: Any = None

    def serves(self, socket: Path, decided: Decided | None = None) -> None:
        """From now on it answers there. Raises OSError."""
        self._decided = decided or self._decided
        self._address = unix.Address(socket)
        self._channel = grpc.aio.insecure_channel(str(self._address), options=_OPTIONS)
        self._serves.set_result(True)

    def owns(self) -> None:
        """From now on the kubelet may call it without this gateway, so nobody else may decide."""
        self._decided.yes = True

    async def answer(self, path: str, raw: bytes, seconds: float, *, decides: bool) -> bytes | None:
        """None: it doesn't answer any more, so the older gateway must. Raises AioRpcError as the kubelet should see it,
        also if it doesn't answer, and the older gateway may not either; TimeoutError if nobody knows what it does.

        ``path``: of the RPC, as gRPC names it. ``seconds``: that it has once it serves. ``decides``: whether the call
        gives anything away, or makes it ready.
        """
        if not await asyncio.shield(self._serves):
            return None
        died = False
        try:
            async with asyncio.timeout(seconds):
                answer: bytes = await self._channel.unary_unary(path)(raw)
        except grpc.aio.AioRpcError as error:
            died = error.code() is grpc.StatusCode.UNAVAILABLE  # then the kubelet got nothing by this call
            if died and not (decides and self._decided.yes):
                return None
            raise
        finally:
            self._decided.yes |= decides and not died
        return answer

    async def end(self) -> None:
        """It serves no more, or nobody asks it any more."""
        if not self._serves.done():
            self._serves.set_result(False)
        if self._channel is not None:
            await self._channel.close()
        if self._address is not None:
            self._address.close()

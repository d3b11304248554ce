"""The newer gateway's answers to the calls that a kubelet still makes at the older one.

A call waits until the newer gateway serves. If it never does, or can't have decided anything yet, the older gateway
answers the call after all. Otherwise the kubelet gets what the newer one says, or an error, because only a gateway that
has read the newer one's journal may decide then.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from dpgateway.deviceplugin.api import Api, Call, Rpc
from dpgateway.deviceplugin.server.handlers import Answered
from dpgateway.kit.channel import Channel

MARGIN = 1.0
"""Seconds that the newer gateway has besides the resource's own time, because it knows better why it has no answer."""

_DECIDING = frozenset({Call.ALLOCATE, Call.PREPARE})
"""The calls that give something away, or make it ready."""


@dataclass
class Decided:
    """Whether the newer gateway may have given something away, as any of the resources that it got at once.

    Its journal has that 50 ms later, so from then on only a gateway that reads the journal may decide.
    """

    yes: bool = False


class Proxy:
    """Of one resource. Used from the event loop."""

    def __init__(self, resource: str, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._resource, self._log = resource, log
        self._channel: asyncio.Future[Channel | None] = asyncio.get_running_loop().create_future()
        self._decided = Decided()

    def serves(self, socket: Path, decided: Decided | None = None) -> None:
        """From now on the newer gateway answers there. Raises OSError."""
        self._decided = decided or self._decided
        self._channel.set_result(Channel(socket))

    def owns(self) -> None:
        """From now on the kubelet may call the newer gateway directly, so the older one may decide nothing."""
        self._decided.yes = True

    async def answer(self, api: Api, rpc: Rpc, raw: bytes, patience: float) -> Answered | None:
        """The newer gateway's answer to ``rpc``; None if this gateway must answer.

        ``patience``: seconds within which the kubelet is to have an answer, once the newer gateway serves.
        """
        if (channel := await asyncio.shield(self._channel)) is None:
            return None
        decides, seconds, died = rpc.call in _DECIDING, patience + MARGIN, False
        try:
            async with asyncio.timeout(seconds):
                answer: bytes = await channel.unary_unary(f"/{api.service}/{rpc.name}")(raw)
        except grpc.aio.AioRpcError as error:
            # If it has died, the kubelet got nothing by this call; but it may have got something by an earlier one.
            died = error.code() is grpc.StatusCode.UNAVAILABLE
            if died and not (decides and self._decided.yes):
                return None
            return error.code(), error.details() or ""
        except TimeoutError:
            if not decides:  # so both may answer
                return None
            text = f"the gateway that takes over hasn't answered {rpc.name} within {seconds:g} s"
            self._log.warning("%s", text, extra={"api": api.name, "rpc": rpc.name, "reason": text})
            return grpc.StatusCode.DEADLINE_EXCEEDED, f"resource {self._resource}: {text}"
        finally:
            self._decided.yes |= decides and not died
        return grpc.StatusCode.OK, answer

    async def end(self) -> None:
        """The newer gateway serves no more, or isn't asked any more. Calls that wait are this gateway's."""
        if not self._channel.done():
            self._channel.set_result(None)
        elif (channel := self._channel.result()) is not None:
            await channel.close()

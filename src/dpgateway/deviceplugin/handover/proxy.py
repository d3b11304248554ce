"""Forwards the calls that still reach the older gateway to the newer one.

A call waits until the newer gateway serves. If it never does, or can't have decided anything yet, the older gateway
answers the call after all. Otherwise the kubelet gets the newer one's answer, or an error, because only a gateway that
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
from dpgateway.deviceplugin.server.handlers import ALLOCATE_PREPARES, Answered
from dpgateway.kit.channel import Channel

MARGIN = 1.0
"""Seconds beyond the most that an answer takes, so that the newer gateway's error comes first: it has the reason."""

_DECIDING = frozenset({Call.ALLOCATE, Call.PREPARE})
"""The calls that change state: they allocate a device, or prepare it."""


@dataclass
class Decided:
    """Whether the newer gateway may have allocated something, in any resource of one handover.

    Its journal has the allocation 50 ms later, so from then on only a gateway that reads that journal may decide.
    """

    yes: bool = False


class Proxy:
    """The proxy of one resource. Used from the event loop."""

    def __init__(self, resource: str, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._resource, self._log = resource, log
        self._channel: asyncio.Future[Channel | None] = asyncio.get_running_loop().create_future()
        self._decided, self._prepares = Decided(), False

    def serves(self, socket: Path, decided: Decided | None = None, agent: str = "", *, prepares: bool = False) -> None:
        """The newer gateway serves at ``socket``: forwards calls there. ``agent``: the kubelet's user agent, which the
        newer one knows from no stream yet; ``prepares``: whether that kubelet won't call PreStartContainer. Raises
        OSError.
        """
        self._prepares = prepares
        self._decided = decided or self._decided
        self._channel.set_result(Channel(socket, agent=agent))

    def owns(self) -> None:
        """The kubelet may now call the newer gateway directly, so the older one must decide nothing."""
        self._decided.yes = True

    async def answer(self, api: Api, rpc: Rpc, raw: bytes, patience: float) -> Answered | None:
        """The newer gateway's answer to ``rpc``; None if this gateway must answer.

        ``patience``: the answer's timeout in seconds, once the newer gateway serves.
        """
        # shield: all waiting calls share this future, and a kubelet may cancel one of them.
        if (channel := await asyncio.shield(self._channel)) is None:
            return None
        told = ((ALLOCATE_PREPARES, "1"),) if self._prepares else None
        decides, seconds, died = rpc.call in _DECIDING, patience + MARGIN, False
        try:
            async with asyncio.timeout(seconds):
                answer: bytes = await channel.unary_unary(f"/{api.service}/{rpc.name}")(raw, metadata=told)
        except grpc.aio.AioRpcError as error:
            # A dead gateway has allocated nothing in this call, but may have in an earlier one.
            died = error.code() is grpc.StatusCode.UNAVAILABLE
            if died and not (decides and self._decided.yes):
                return None
            return error.code(), error.details() or ""
        except TimeoutError:
            if not decides:  # two answers do no harm
                return None
            text = f"the gateway that takes over hasn't answered {rpc.name} within {seconds:g} s"
            self._log.warning("%s", text, extra={"api": api.name, "rpc": rpc.name, "reason": text})
            return grpc.StatusCode.DEADLINE_EXCEEDED, f"resource {self._resource}: {text}"
        finally:
            self._decided.yes |= decides and not died
        return grpc.StatusCode.OK, answer

    async def end(self) -> None:
        """Stops forwarding. Waiting calls are answered by this gateway."""
        if not self._channel.done():
            self._channel.set_result(None)
        elif (channel := self._channel.result()) is not None:
            await channel.close()

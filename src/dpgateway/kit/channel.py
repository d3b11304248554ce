"""A gRPC channel to a unix socket."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import grpc.aio

from dpgateway.kit.unix import Address

_OPTIONS = [
    # the process-wide pool remembers that a path failed, and makes the next connection wait
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # a peer that answers GOAWAY and stays connected would cost a core, and gigabytes, until the deadline
    ("grpc.enable_retries", 0),
]


class Channel(contextlib.AbstractAsyncContextManager["Channel"]):
    """A channel. Used from the event loop."""

    def __init__(self, socket: Path, largest: int | None = None, agent: str = "") -> None:
        """``largest``: bytes of an answer; gRPC's own limit is 4 MiB. ``agent``: the user agent that comes before
        gRPC's own. Raises OSError if the directory isn't there.
        """
        self._address = Address(socket)
        more: list[tuple[str, object]] = []
        if largest is not None:
            more.append(("grpc.max_receive_message_length", largest))
        if agent:
            more.append(("grpc.primary_user_agent", agent))
        self._grpc: Any = grpc.aio.insecure_channel(str(self._address), options=[*_OPTIONS, *more])

    def unary_unary(self, path: str) -> grpc.aio.UnaryUnaryMultiCallable:
        """``path``: of the RPC, as gRPC names it."""
        return self._grpc.unary_unary(path)

    def unary_stream(self, path: str) -> grpc.aio.UnaryStreamMultiCallable:
        return self._grpc.unary_stream(path)

    async def close(self, grace: float | None = None) -> None:
        """``grace``: seconds for calls to end. Suppresses errors, because the channel isn't needed any more."""
        try:
            with contextlib.suppress(Exception):
                await self._grpc.close(grace)
        finally:
            self._address.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

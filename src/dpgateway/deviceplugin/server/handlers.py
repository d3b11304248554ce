"""gRPC handlers for each API's RPCs on one resource: decode, call, encode.

Theory of operation
    - Two versions may share an RPC's path. Then the version of the last Register decides how to decode its bytes.
    - A call runs until gRPC has written its answer, a stream until gRPC has written its end. The handler's task is the
      one that writes them, so the running calls are the handler tasks that aren't done (``_running``).
    - A handler calls the resource, unless a newer gateway takes it over: then calls are forwarded, and this gateway
      answers only those that the newer one leaves to it.
    - At the end new calls are refused, running ones get a grace period, and each stream is told to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpgateway.deviceplugin.api import Api, Call, Rpc
from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.server.streams import End, Lists, ListThrottle
from dpgateway.errors import (
    Busy,
    CdiError,
    DriverError,
    DriverFault,
    DriverTimeout,
    GatewayError,
    RequestError,
    encodable,
)
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.observable import Observable

CODES: tuple[tuple[type[GatewayError], grpc.StatusCode], ...] = (
    (RequestError, grpc.StatusCode.FAILED_PRECONDITION),
    (CdiError, grpc.StatusCode.FAILED_PRECONDITION),
    (Busy, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DriverError, grpc.StatusCode.FAILED_PRECONDITION),
    (DriverTimeout, grpc.StatusCode.DEADLINE_EXCEEDED),
    (DriverFault, grpc.StatusCode.INTERNAL),
    (GatewayError, grpc.StatusCode.INTERNAL),
)

ENDING = "the gateway is ending; another one may follow"
LONGEST_TEXT = 2000
"""Most bytes of an error's text: a status is a header, and clients limit headers to 8 KiB."""
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""The characters that gRPC sends unescaped; other bytes are sent as %XX (PROTOCOL-HTTP2.md, Status-Message)."""

KUBELET_AGENT = "grpc-go/"
"""Prefix of the user agent of every kubelet, and of every other Go client (``callers``)."""

ALLOCATE_PREPARES = "dpgateway-unasked"
"""The key of metadata of a forwarded Allocate: whether the older gateway has told the kubelet not to call
PreStartContainer."""

ServicerContext = Any
"""grpc.aio.ServicerContext, which comes without types."""


Answered = tuple[grpc.StatusCode, bytes | str]
"""The encoded answer, or the text of the error."""

Forward = Callable[[Api, Rpc, bytes, float], Awaitable[Answered | None]]
"""Called with an RPC, its encoded request, and the answer's timeout in seconds. None: this gateway must answer."""

UNARY = frozenset(Call) - {Call.WATCH}
STREAMS = frozenset({Call.WATCH})


@dataclass(frozen=True, slots=True)
class StreamCallbacks:
    """Callbacks of one stream of the kubelet."""

    listed: Callable[[], None]
    """The first real list was sent; one with every id Unhealthy may have preceded it."""
    closed: Callable[[], None]
    """The stream has ended."""
    seamless: bool = False
    """Whether the older gateway's stream is still open, so that the kubelet counts the devices as listed there."""


NOBODY = StreamCallbacks(lambda: None, lambda: None)

Opened = Callable[[str], StreamCallbacks | None]
"""Called with a Go client's user agent for each new stream; None if the client isn't the kubelet."""


class Handlers:
    """The handlers of one resource; outlives the servers that use it."""

    def __init__(
        self,
        calls: KubeletCalls,
        apis: Iterable[Api],
        opened: Opened,
        throttle: ListThrottle,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.name = calls.name
        self._calls, self._apis, self._opened, self._log = calls, tuple(apis), opened, log
        self.lists = Lists(calls.inventory.list, throttle)
        self._running: dict[asyncio.Task[Any], Call] = {}
        """The tasks of handlers whose answer isn't sent yet."""
        self._ends: set[End] = set()
        self._forward: Forward | None = None
        self._refusing = False
        self._refused: dict[str, tuple[str, float]] = {}
        """Why each RPC's last call was refused, and since when its calls are, by name."""
        self.refused: Observable[tuple[str, float] | None] = Observable(None)
        """Why calls are refused, and since when, in seconds of the monotonic clock; of several RPCs, the one refused
        first. A RequestError doesn't count. None once each RPC has succeeded again.
        """
        self.rpcs = CallStats()
        """Answered calls, by RPC and gRPC code."""

    def generic(self) -> list[grpc.GenericRpcHandler]:
        """One handler per service, for a gRPC server."""
        services: dict[str, dict[str, grpc.RpcMethodHandler]] = {}
        for api in reversed(self._apis):  # where two versions share a service, the newest version's row is the default
            methods = services.setdefault(api.service, {})
            methods |= {rpc.name: self._method(api, rpc) for rpc in api.rpcs}
        return [grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items()]

    def _method(self, api: Api, rpc: Rpc) -> grpc.RpcMethodHandler:
        if rpc.call is Call.WATCH:
            return grpc.unary_stream_rpc_method_handler(partial(self._watch, api, rpc))

        async def answer(raw: bytes, context: ServicerContext) -> bytes:  # gRPC unwraps a partial at each call
            return await self._answer(api, rpc, raw, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _answer(self, api: Api, rpc: Rpc, raw: bytes, context: ServicerContext) -> bytes:
        """One call, from the bytes of its request to those of the answer."""
        api, rpc = await self._begin(api, rpc, context)
        # An older gateway may forward calls before the kubelet opens a stream here; they have its user agent.
        if not self._calls.agent and (agent := _agent(context)).startswith(KUBELET_AGENT):
            self._calls.remember_agent(agent)

        # A newer gateway answers first, and counts what it answers.
        answered = None
        if self._forward is not None:
            answered = await self._forward(api, rpc, raw, self._calls.patience(rpc.call, api))
            if answered is None and self._refusing:
                answered = grpc.StatusCode.UNAVAILABLE, ENDING
        if answered is None:
            began, code = time.monotonic(), grpc.StatusCode.CANCELLED
            try:
                prepares = bool(_metadata(context, ALLOCATE_PREPARES))
                answered = code, _ = await self._call(api, rpc, raw, prepares=prepares)
            finally:
                self.rpcs.add(rpc.name, code.name, began)
        code, encoded = answered
        if isinstance(encoded, bytes):
            return encoded
        # Cut to LONGEST_TEXT bytes in their escaped form, without an escape or a character that was cut in half.
        sent = quote(encodable(encoded[:LONGEST_TEXT]), safe=_PLAIN)[:LONGEST_TEXT]
        await context.abort(code, unquote(re.sub("%.?$", "", sent), errors="ignore"))
        raise AssertionError  # abort raises

    async def _begin(self, api: Api, rpc: Rpc, context: ServicerContext) -> tuple[Api, Rpc]:
        """Tracks the call, and resolves the version in which it was made. Aborts it if the resource is ending."""
        if self._refusing:
            await context.abort(grpc.StatusCode.UNAVAILABLE, ENDING)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine runs in one
        self._running[task] = rpc.call
        task.add_done_callback(self._running.pop)  # a context's own callback may come earlier

        # 1.8 and 1.9 share a path, so gRPC's choice of the row may be wrong; the API of the last Register isn't.
        spoken = self._calls.api
        if spoken is not api and spoken.service == api.service:
            for row in spoken.rpcs:
                if row.name == rpc.name:
                    return spoken, row
        return api, rpc

    async def _call(self, api: Api, rpc: Rpc, raw: bytes, *, prepares: bool) -> Answered:
        """Calls the resource. Errors become a gRPC status, and :attr:`refused`."""
        try:
            request = rpc.decode(raw)
            answer: Any = None
            match rpc.call:
                case Call.OPTIONS:
                    answer = self._calls.options()
                case Call.PREFER:
                    answer = await self._calls.prefer(request)
                case Call.ALLOCATE:
                    answer = await self._calls.allocate(request, api, prepares=prepares)
                case Call.PREPARE:
                    await self._calls.prepare(request)
            encoded = rpc.encode(answer)
        except DecodeError as error:
            return grpc.StatusCode.INVALID_ARGUMENT, f"{api.service}/{rpc.name}: not that request: {error}"
        except GatewayError as error:
            text = str(error)
            fields = {"api": api.name, "rpc": rpc.name, "reason": text}
            self._log.warning("%s refused: %s", rpc.name, text, extra=fields)
            if not isinstance(error, RequestError):  # a faulty request says nothing about the next one
                _, since = self._refused.get(rpc.name, ("", time.monotonic()))
                self._refused[rpc.name] = text, since
                self.refused.set(next(iter(self._refused.values())))
            return next(code for kind, code in CODES if isinstance(error, kind)), text
        except Exception as error:
            self._log.exception("a bug: %s failed", rpc.name, extra={"api": api.name, "rpc": rpc.name})
            return grpc.StatusCode.INTERNAL, f"a bug of the gateway: {error!r}"
        if self._refused.pop(rpc.name, None) is not None:
            self.refused.set(next(iter(self._refused.values()), None))
        return grpc.StatusCode.OK, encoded

    async def _watch(self, api: Api, rpc: Rpc, raw: bytes, context: ServicerContext) -> AsyncIterator[bytes]:
        api, rpc = await self._begin(api, rpc, context)
        try:
            rpc.decode(raw)
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{api.service}/{rpc.name}: {error}")
        agent = _agent(context)
        end, stream = End(), NOBODY
        self._ends.add(end)  # before any callback, which may end the streams
        try:
            # Other clients are served as well, but without callbacks, so they change no state.
            if agent.startswith(KUBELET_AGENT):
                stream = self._opened(agent) or NOBODY
            forgets = agent.startswith(api.forgetful) and not stream.seamless
            async with contextlib.aclosing(self.lists.watch(api, forgets, end, stream.listed)) as messages:
                async for message in messages:
                    yield message
        finally:
            self._ends.discard(end)
            stream.closed()

    def running(self, calls: Collection[Call] = UNARY) -> int:
        """The number of unanswered calls of these kinds; for STREAMS, of streams whose end hasn't been sent."""
        return sum(call in calls for call in self._running.values())

    async def done(self, calls: Collection[Call] = UNARY) -> None:
        """Returns when none of these calls is running; the next one may come as soon as the caller awaits."""
        while tasks := [task for task, call in self._running.items() if call in calls]:
            await asyncio.wait(tasks)

    def make_ready(self) -> None:
        """Encodes the list in advance, in the API of the Register that is about to be sent."""
        self.lists.encode(self._calls.api)

    def forward(self, to: Forward | None) -> None:
        """Forwards calls to ``to`` first; None: this gateway answers every call."""
        self._forward = to

    @property
    def forwards(self) -> bool:
        """Whether calls are forwarded, or wait for that."""
        return self._forward is not None

    def refuse(self) -> None:
        """Refuses new calls, because the resource is ending."""
        self._refusing = True

    def end_streams(self) -> None:
        for end in self._ends:
            end.say()


def _agent(context: ServicerContext) -> str:
    """The client's user agent."""
    return _metadata(context, "user-agent")


def _metadata(context: ServicerContext, wanted: str) -> str:
    metadata = context.invocation_metadata() or ()
    return next((str(value) for key, value in metadata if key == wanted), "")

"""Each API's RPCs as gRPC handlers over one resource: bytes in, the neutral call, bytes out.

Theory of operation
    - Two versions may share an RPC's path. Then the version of the last Register decides what its bytes mean.
    - A call is running until gRPC has written its answer, and a stream until its end is written. The task of a handler
      is the task that writes them, so what is running are the tasks of handlers that aren't done.
    - A handler asks the resource, unless another gateway takes the resource over: then calls are forwarded, and this
      gateway answers only what the other one can't have.
    - At the end new calls are refused, those that run have their time, and each stream is told to end.
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
    (Busy, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DriverError, grpc.StatusCode.FAILED_PRECONDITION),
    (DriverTimeout, grpc.StatusCode.DEADLINE_EXCEEDED),
    (DriverFault, grpc.StatusCode.INTERNAL),
    (GatewayError, grpc.StatusCode.INTERNAL),
)

LONGEST_TEXT = 2000
"""Bytes of an error that are sent: a status is a header, and clients limit headers to 8 KiB."""
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What gRPC sends as it is; of all else it sends each byte as %XX (its PROTOCOL-HTTP2.md, Status-Message)."""

KUBELET_AGENT = "grpc-go/"
"""How a kubelet of any release names itself, and other clients that are written in Go (``callers``)."""

ServicerContext = Any
"""grpc.aio.ServicerContext, which comes without types."""


Answered = tuple[grpc.StatusCode, bytes | str]
"""The bytes of an answer, or a text that says why there is none."""

Forward = Callable[[Api, Rpc, bytes, float], Awaitable[Answered | None]]
"""Gets an RPC, its bytes, and the seconds that an answer may take. None: this gateway must answer it itself."""

UNARY = frozenset(Call) - {Call.WATCH}
STREAMS = frozenset({Call.WATCH})


@dataclass(frozen=True, slots=True)
class StreamCallbacks:
    """What is called for one stream of the kubelet."""

    listed: Callable[[], None]
    """The first list was sent, and not only the one in which all is Unhealthy."""
    closed: Callable[[], None]
    """The stream has ended."""
    seamless: bool = False
    """Whether another gateway's stream is open still, so the kubelet counts the devices as that one listed them."""


NOBODY = StreamCallbacks(lambda: None, lambda: None)

Opened = Callable[[str], StreamCallbacks | None]
"""Called with the user agent for each stream that a kubelet may have opened; None: it isn't the kubelet's."""


class Handlers:
    """The handlers of one resource; outlives the servers that it is put on."""

    def __init__(
        self,
        resource: KubeletCalls,
        apis: Iterable[Api],
        opened: Opened,
        throttle: ListThrottle,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.name = resource.name
        self._resource, self._apis, self._opened, self._log = resource, tuple(apis), opened, log
        self._lists = Lists(resource.inventory.list, throttle)
        self._running: dict[asyncio.Task[Any], Call] = {}
        """The handlers whose answer isn't sent yet."""
        self._ends: set[End] = set()
        self._forward: Forward | None = None
        self._refusing = False
        self._calls: dict[Call, Callable[[Any, Api], Awaitable[Any]]] = {
            Call.OPTIONS: self._options,
            Call.PREFER: lambda requests, _: resource.prefer(requests),
            Call.ALLOCATE: resource.allocate,
            Call.PREPARE: lambda ids, _: resource.prepare(ids),
        }
        self._refused: dict[str, tuple[str, float]] = {}
        """Why the last call of each RPC was refused, by name."""
        self.refused: Observable[tuple[str, float] | None] = Observable(None)
        """Why the last container that asked for what can be given got nothing, and since when each got nothing, in
        seconds of the monotonic clock. None once one has got what it asked for.
        """
        self.rpcs = CallStats()
        """Those that were answered, by name, with gRPC's codes."""

    def generic(self) -> list[grpc.GenericRpcHandler]:
        """For a gRPC server: each service's methods, by name."""
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

    async def _begin(self, api: Api, rpc: Rpc, context: ServicerContext) -> tuple[Api, Rpc]:
        """A handler begins: the version that was spoken. Aborts the call if the resource ends."""
        if self._refusing:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the gateway is ending; another one may follow")
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine runs in one
        self._running[task] = rpc.call
        task.add_done_callback(self._running.pop)  # a context's own callback may come earlier

        spoken = self._resource.api
        if spoken is not api and spoken.service == api.service:
            for row in spoken.rpcs:
                if row.name == rpc.name:
                    return spoken, row
        return api, rpc

    async def _answer(self, api: Api, rpc: Rpc, raw: bytes, context: ServicerContext) -> bytes:
        api, rpc = await self._begin(api, rpc, context)
        answered = None
        if self._forward is not None:
            answered = await self._forward(api, rpc, raw, self._resource.patience(rpc.call, api))
        if answered is None:
            began, code = time.monotonic(), grpc.StatusCode.CANCELLED
            try:
                answered = code, _ = await self._call(api, rpc, raw)
            finally:
                self.rpcs.add(rpc.name, code.name, began)
        code, answer = answered
        if isinstance(answer, bytes):
            return answer
        await context.abort(code, _short(answer))
        raise AssertionError  # abort raises

    async def _call(self, api: Api, rpc: Rpc, raw: bytes) -> Answered:
        """The resource's answer. Errors are told to the kubelet, and to whoever asks for the status."""
        try:
            answer = rpc.encode(await self._calls[rpc.call](rpc.decode(raw), api))
        except DecodeError as error:
            return grpc.StatusCode.INVALID_ARGUMENT, f"{api.service}/{rpc.name}: not that request: {error}"
        except GatewayError as error:
            text = str(error)
            fields = {"api": api.name, "rpc": rpc.name, "reason": text}
            self._log.warning("%s refused: %s", rpc.name, text, extra=fields)
            if not isinstance(error, RequestError):  # the next request is another one
                _, since = self._refused.get(rpc.name, ("", time.monotonic()))
                self._refused[rpc.name] = text, since
                self.refused.set(next(iter(self._refused.values())))
            return next(code for kind, code in CODES if isinstance(error, kind)), text
        except Exception as error:
            self._log.exception("a bug: %s failed", rpc.name, extra={"api": api.name, "rpc": rpc.name})
            return grpc.StatusCode.INTERNAL, f"a bug of the gateway: {error!r}"
        if self._refused.pop(rpc.name, None) is not None:
            self.refused.set(next(iter(self._refused.values()), None))
        return grpc.StatusCode.OK, answer

    async def _options(self, _: None, api: Api) -> object:
        return self._resource.options()

    async def _watch(self, api: Api, rpc: Rpc, raw: bytes, context: ServicerContext) -> AsyncIterator[bytes]:
        api, rpc = await self._begin(api, rpc, context)
        try:
            rpc.decode(raw)
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{api.service}/{rpc.name}: {error}")
        agent, end, stream = _agent(context), End(), NOBODY
        self._ends.add(end)  # before anybody is told of the stream, and may want to end it
        try:
            if agent.startswith(KUBELET_AGENT):
                stream = self._opened(agent) or NOBODY
            forgets = agent.startswith(api.forgetful) and not stream.seamless
            async with contextlib.aclosing(self._lists.watch(api, forgets, end, stream.listed)) as messages:
                async for message in messages:
                    yield message
        finally:
            self._ends.discard(end)
            stream.closed()

    def running(self, calls: Collection[Call] = UNARY) -> int:
        """How many of these calls aren't answered yet; of STREAMS: whose end hasn't been sent."""
        return sum(call in calls for call in self._running.values())

    async def done(self, calls: Collection[Call] = UNARY) -> None:
        """Returns at a moment when none of them is running; the next one may come as soon as the caller waits."""
        while tasks := [task for task, call in self._running.items() if call in calls]:
            await asyncio.wait(tasks)

    def make_ready(self) -> None:
        """Encodes the list for a kubelet that is about to ask for it, in the API of the Register."""
        self._lists.encode(self._resource.api)

    def forward(self, to: Forward | None) -> None:
        """From now on ``to`` is asked first; None: nobody is, and this gateway answers every call."""
        self._forward = to

    def hush(self) -> None:
        """Nothing more is sent on the streams, which stay open: a newer gateway lists the devices from now on."""
        self._lists.hush()

    def refuse(self) -> None:
        """From now on new calls are refused, because the resource ends."""
        self._refusing = True

    def end_streams(self) -> None:
        for end in self._ends:
            end.say()


def _short(text: str) -> str:
    """As much of the text as may be sent."""
    sent = quote(encodable(text[:LONGEST_TEXT]), safe=_PLAIN)[:LONGEST_TEXT]
    return unquote(re.sub("%.?$", "", sent), errors="ignore")  # without half of what the end cut through


def _agent(context: ServicerContext) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "user-agent":
            return str(value)
    return ""

"""Each API's RPCs as gRPC handlers over one resource: bytes in, the neutral call, bytes out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import operator
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpgateway.deviceplugin.api import Api, Call, Rpc
from dpgateway.deviceplugin.resource import Resource
from dpgateway.deviceplugin.server.streams import End, Lists
from dpgateway.deviceplugin.server.successor import Successor
from dpgateway.deviceplugin.server.throttle import Pace
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

MARGIN = 1.0
"""Seconds that a newer gateway has besides the resource's own time, because it knows better why it has no answer."""

_DECIDING = frozenset({Call.ALLOCATE, Call.PREPARE})
"""The calls that give something away, or make it ready."""

KUBELET_AGENT = "grpc-go/"
"""How a kubelet of any release names itself, and other clients that are written in Go (``callers``)."""

ServicerContext = Any
"""grpc.aio.ServicerContext, which comes without types."""


@dataclass(frozen=True, slots=True)
class Hearer:
    """Who hears of one stream that a kubelet opened."""

    listed: Callable[[], None]
    """A list was sent, and not only the one in which all is Unhealthy."""
    closed: Callable[[], None]
    """The stream has ended."""


NOBODY = Hearer(lambda: None, lambda: None)

Opened = Callable[[str], Hearer | None]
"""Called with the user agent for each stream that a kubelet may have opened; None: it isn't the kubelet's."""


class Handlers:
    """The handlers of one resource; outlives the servers that it is put on."""

    def __init__(
        self,
        resource: Resource,
        apis: Iterable[Api],
        opened: Opened,
        pace: Pace,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.name = resource.name
        self._resource, self._apis, self._opened, self._log = resource, tuple(apis), opened, log
        self._lists = Lists(resource.inventory.list, pace)
        self._ends: set[End] = set()
        self._allocating = Observable(0)
        self.calls = Observable(0)
        """How many calls of any kind, but for streams, aren't answered yet."""
        self.successor: Successor | None = None
        """Who answers instead of this gateway."""
        self.seamless = False
        """Whether the kubelet has an open stream of another gateway when the next one is opened."""
        self.streaming = Observable(0)
        """How many streams there are whose end hasn't been sent yet."""
        self._calls: dict[Call, Callable[[Any, Api], Awaitable[Any]]] = {
            Call.OPTIONS: self._options,
            Call.PREFER: lambda requests, _: resource.prefer(requests),
            Call.ALLOCATE: resource.allocate,
            Call.PREPARE: lambda ids, _: resource.prepare(ids),
        }
        self.refusing = False
        """Whether new calls are refused, because the resource ends."""
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

    def _spoken(self, api: Api, rpc: Rpc) -> tuple[Api, Rpc]:
        """Where versions share a path, the version of the last Register decides."""
        spoken = self._resource.api
        if spoken is not api and spoken.service == api.service:
            for row in spoken.rpcs:
                if row.name == rpc.name:
                    return spoken, row
        return api, rpc

    async def _answer(self, api: Api, rpc: Rpc, raw: bytes, context: ServicerContext) -> bytes:
        if self.refusing:
            await self._refuse(context)
        api, rpc = self._spoken(api, rpc)
        _count_until_sent(self.calls)
        if rpc.call is Call.ALLOCATE:
            _count_until_sent(self._allocating)
        if self.successor is not None and (passed_on := await self._pass_on(api, rpc, raw, context)) is not None:
            return passed_on
        began, code = time.monotonic(), grpc.StatusCode.CANCELLED
        try:
            code, answer = await self._answered(api, rpc, raw)
        finally:
            self.rpcs.add(rpc.name, code.name, began)
        if isinstance(answer, bytes):
            return answer
        await context.abort(code, _short(answer))
        raise AssertionError  # abort raises

    async def _pass_on(self, api: Api, rpc: Rpc, raw: bytes, context: ServicerContext) -> bytes | None:
        """The answer of the gateway that took over; None if this one must answer after all."""
        assert self.successor is not None  # noqa: S101  the caller looked
        seconds = self._resource.patience(rpc.call, api) + MARGIN
        try:
            path = f"/{api.service}/{rpc.name}"
            return await self.successor.answer(path, raw, seconds, decides=rpc.call in _DECIDING)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        except TimeoutError:
            if rpc.call not in _DECIDING:  # so both may answer
                return None
            text = f"the gateway that takes over hasn't answered {rpc.name} within {seconds:g} s"
            self._log.warning("%s", text, extra={"api": api.name, "rpc": rpc.name, "reason": text})
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"resource {self.name}: {text}")
        raise AssertionError  # abort raises

    async def _answered(self, api: Api, rpc: Rpc, raw: bytes) -> tuple[grpc.StatusCode, bytes | str]:
        """The answer, or a text that says why there is none."""
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

    @staticmethod
    async def _refuse(context: ServicerContext) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the gateway is ending; another one may follow")

    async def _options(self, _: None, api: Api) -> object:
        return self._resource.options()

    async def _watch(self, api: Api, rpc: Rpc, raw: bytes, context: ServicerContext) -> AsyncIterator[bytes]:
        if self.refusing:
            await self._refuse(context)
        api, rpc = self._spoken(api, rpc)
        try:
            rpc.decode(raw)
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{api.service}/{rpc.name}: {error}")
        agent, end, hearer = _agent(context), End(), NOBODY
        self._ends.add(end)  # before anybody is told of the stream, and may want to end it
        _count_until_sent(self.streaming)
        try:
            if agent.startswith(KUBELET_AGENT):
                hearer = self._opened(agent) or NOBODY
            forgets, self.seamless = agent.startswith(api.forgetful) and not self.seamless, False
            async with contextlib.aclosing(self._lists.watch(api, forgets, end, hearer.listed)) as messages:
                async for message in messages:
                    yield message
        finally:
            self._ends.discard(end)
            hearer.closed()

    async def idle(self) -> None:
        """Returns at a moment when each call was answered; the next one may come as soon as the caller waits."""
        await self.calls.wait_for(operator.not_)

    async def still(self) -> None:
        """Returns when the end of each stream has been sent."""
        await self.streaming.wait_for(operator.not_)

    def make_ready(self) -> None:
        """Encodes the list for a kubelet that is about to ask for it, in the API of the Register."""
        self._lists.encode(self._resource.api)

    def hush(self) -> None:
        """Nothing more is sent on the streams, which stay open: a newer gateway lists the devices from now on."""
        self._lists.hushed = True

    def end_streams(self) -> None:
        for end in self._ends:
            end.say()

    async def quiet(self) -> None:
        """Returns when no Allocate is in flight, and each answer has been sent."""
        await self._allocating.wait_for(operator.not_)


def _count_until_sent(number: Observable[int]) -> None:
    """Adds one until gRPC has written what the handler that runs now answers.

    The task of a handler is the task that writes its answer. A context's own callback may come earlier.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  a coroutine runs in one
    number.set(number.value + 1)
    task.add_done_callback(lambda _: number.set(number.value - 1))


def _short(text: str) -> str:
    """As much of the text as may be sent."""
    sent = quote(encodable(text[:LONGEST_TEXT]), safe=_PLAIN)[:LONGEST_TEXT]
    return unquote(re.sub("%.?$", "", sent), errors="ignore")  # without half of what the end cut through


def _agent(context: ServicerContext) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "user-agent":
            return str(value)
    return ""

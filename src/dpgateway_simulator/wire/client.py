"""A grpclib client that looks like grpc-go: headers, message limit, dialling and error texts.

grpclib has no hooks for these, so this module uses some of its private names; its tests check the bytes on the wire.
"""

import asyncio
import errno
import struct
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import betterproto
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.metadata import Deadline
from grpclib.protocol import H2Protocol

from dpgateway_simulator.wire import sockets

Headers = list[tuple[str, str]]
FAILURES = (GRPCError, ProtocolError, StreamTerminatedError, TimeoutError, OSError, AssertionError)
"""Every exception of a failed call; `explain` formats each."""

_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline of the call", default=None)
_GO_ERRNO = {
    errno.ENOENT: "no such file or directory",
    errno.ECONNREFUSED: "connection refused",
    errno.EINVAL: "invalid argument",
    errno.EACCES: "permission denied",
}
_CODES = {status: status.name.title().replace("_", "") for status in Status} | {Status.CANCELLED: "Canceled"}


class Codec(CodecBase):  # type: ignore[misc]
    """Protobuf, with grpc-go's limit of `limit` bytes on received messages (rpc_util.go)."""

    __content_subtype__ = "proto"

    def __init__(self, limit: int | None) -> None:
        self._limit = limit

    def encode(self, message: betterproto.Message, message_type: type) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: type[betterproto.Message]) -> betterproto.Message:
        if self._limit is not None and len(data) > self._limit:
            text = f"grpc: received message larger than max ({len(data)} vs. {self._limit})"
            raise GRPCError(Status.RESOURCE_EXHAUSTED, text)
        try:
            return message_type().parse(data)
        except (ValueError, EOFError, IndexError, KeyError, struct.error) as error:
            raise GRPCError(Status.INTERNAL, f"grpc: failed to unmarshal the received message: {error}") from error


class _ClientProtocol(H2Protocol):  # type: ignore[misc]
    """A connection that sends grpc-go's headers. `spoken` is done at the plugin's first bytes, `lost` at the end."""

    def __init__(self, channel: "GoChannel", *arguments: object) -> None:
        super().__init__(*arguments)
        self._channel = channel
        self.spoken = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = self.connection._connection  # noqa: SLF001
        send = connection.send_headers

        def send_headers(stream_id: int, headers: Headers, **how: object) -> None:
            go = {"user-agent": self._channel.user_agent}
            if (deadline := _DEADLINE.get()) is not None:
                # grpclib rounds 29.999 to whole seconds; grpc-go sends milliseconds or less (encodeTimeout,
                # rpc_util.go).
                go["grpc-timeout"] = f"{round(deadline.time_remaining() * 1000)}m"
            send(stream_id, [(name, go.get(name, value)) for name, value in headers], **how)

        connection.send_headers = send_headers

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.spoken.done():
            self.spoken.set_result(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.lost.set()
        if not self.spoken.done():
            self.spoken.set_exception(ConnectionResetError("the plugin closed the connection"))
            self.spoken.exception()  # marks it as retrieved, else asyncio warns


class GoChannel(Channel):  # type: ignore[misc]
    """A connection to a plugin's socket. After a loss the next call reconnects, as in grpc-go, but not after `close`.

    A call's deadline reaches the headers in a context variable, because the hook on send_headers sees headers only.
    """

    def __init__(  # noqa: PLR0913  how it looks
        self,
        path: Path,
        endpoint: str,
        *,
        user_agent: str,
        authority: str,
        limit: int | None,
        real: str = sockets.REAL_DIRECTORY,
    ) -> None:
        super().__init__(path=str(path), codec=Codec(limit))
        self._authority = authority
        self._socket_path, self._endpoint, self._real = path, endpoint, real
        self.user_agent = user_agent
        self.closed = False

    def request(self, *about: Any, timeout: float | None = None, deadline: Deadline | None = None, **how: Any) -> Any:  # noqa: ANN401 - grpclib's signature
        deadline = deadline if timeout is None else Deadline.from_timeout(timeout)
        _DEADLINE.set(deadline)
        return super().request(*about, deadline=deadline, **how)

    async def _create_connection(self) -> _ClientProtocol:
        if self.closed:
            raise ConnectionAbortedError("the client connection is closing")
        sock = sockets.connected(self._socket_path, self._endpoint, self._real)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_unix_connection(self._protocol_factory, sock=sock)
        if protocol.handler.connection_lost:  # lost at the first write; grpclib would go on to use it
            raise ConnectionResetError("the plugin closed the connection")
        return protocol

    def _protocol_factory(self) -> _ClientProtocol:
        handler_protocol: H2Protocol = super()._protocol_factory()
        return _ClientProtocol(self, handler_protocol.handler, handler_protocol.config, handler_protocol.h2_config)

    async def dial(self) -> None:
        """Connects and waits for the HTTP/2 preface, which a process that accepts but doesn't serve never sends."""
        protocol = await self.__connect__()
        await asyncio.shield(protocol.spoken)

    async def lost(self) -> None:
        """Connects if necessary, then waits for the end of the connection."""
        protocol = await self.__connect__()
        await protocol.lost.wait()

    def close(self) -> None:
        self.closed = True
        super().close()


def explain(error: BaseException, path: Path) -> str:
    """The error as grpc-go prints it."""
    if isinstance(error, GRPCError):
        return f"rpc error: code = {_CODES[error.status]} desc = {error.message or ''}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    if isinstance(error, OSError) and error.errno is not None:
        reason = f"dial unix {path}: connect: {_GO_ERRNO.get(error.errno, f'errno {error.errno}')}"
        text = f'connection error: desc = "transport: Error while dialing: {reason}"'
        return f"rpc error: code = Unavailable desc = {text}"
    return f"rpc error: code = Unavailable desc = error reading from server: {error or 'EOF'}"

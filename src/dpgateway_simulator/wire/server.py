"""A grpclib server that looks like grpc-go: its answer to unknown methods, and its end when it is killed."""

import asyncio
import socket
import sys
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Server

from dpgateway_simulator.wire.client import Codec


class _Methods(dict[str, Handler]):
    """The methods of a server. Unknown methods are answered as by grpc-go's server.go."""

    def get(self, path: str, default: object = None) -> Handler:
        service, _, method = path.removeprefix("/").rpartition("/")
        known = any(name.startswith(f"/{service}/") for name in self)
        text = f"unknown method {method} for service {service}" if known else f"unknown service {service}"

        async def refuse(stream: object) -> None:
            raise GRPCError(Status.UNIMPLEMENTED, text)

        return super().get(path) or Handler(refuse, Cardinality.UNARY_UNARY, None, None)


class _Connection(H2Protocol):  # type: ignore[misc]
    """A connection that can be dropped at any time, even before `connection_made`."""

    transport: asyncio.Transport | None = None
    dropped = False

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401  asyncio's base class knows no abort
        super().connection_made(transport)
        self.transport = transport
        if self.dropped:
            transport.abort()

    def drop(self) -> None:
        self.dropped = True
        self.handler.close()
        if self.transport is not None:
            self.transport.abort()


class GoServer(Server):  # type: ignore[misc]
    """A server on a bound unix socket that can listen late, and can end as a killed process does.

    `_connections` contains the open connections of all sockets that it has listened on. A connection that asyncio
    accepts after `end` is dropped as soon as it is made, until the next `listen`.
    """

    def __init__(self, services: list[Any], limit: int = 4 << 20) -> None:
        super().__init__(services, codec=Codec(limit))
        self._mapping: _Methods = _Methods(self._mapping)
        self._server: asyncio.Server | None = None
        self._connections: list[_Connection] = []
        self._ended = False

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        connection = _Connection(made.handler, made.config, made.h2_config)
        connection.dropped = self._ended
        self._connections = [*(one for one in self._connections if not one.handler.closing), connection]
        return connection

    async def listen(self, sock: socket.socket) -> None:
        """Listens on a bound socket instead of the last one. Open connections stay; the end leaves the file in place."""
        how: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        self._stop_listening()
        self._ended = False
        self._server = await self._loop.create_unix_server(self._protocol_factory, sock=sock, **how)
        self._server_closed_fut = self._loop.create_future()

    def end(self) -> None:
        """Stops listening and drops every connection and call at once, without a GOAWAY."""
        self._ended = True
        self._stop_listening()
        for connection in self._connections:
            connection.drop()

    def _stop_listening(self) -> None:
        """Closes the server one turn of the event loop later: asyncio before 3.12 leaks connections that it is just
        accepting when its server is closed.
        """
        if self._server is not None:
            for sock in self._server.sockets:
                self._loop.remove_reader(sock.fileno())
            self._loop.call_soon(self._server.close)
            self._server = None

"""The gRPC servers of one resource, and the names under which a kubelet finds them.

Theory of operation
    - Only the owner of the resource binds a socket, so :meth:`Endpoint.open` first waits for the ownership.
    - One server serves for the life of the resource. A hard link needs the bound name, so if the socket was deleted or
      the directory replaced, the next registration binds a second server. The first one's streams go on meanwhile,
      because they outweigh its missing file. It ends once the only stream is the second server's.
    - A registration is a new link to the socket. Older links stay until a kubelet streams from the newest one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from dpgateway.deviceplugin.api import Call
from dpgateway.deviceplugin.server.handlers import STREAMS, Handlers
from dpgateway.deviceplugin.server.serving import Server
from dpgateway.deviceplugin.server.sockets import SocketNames
from dpgateway.errors import KubeletError
from dpgateway.kit.accepted import ACCEPTED
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import wait_for
from dpgateway.resource.ownership import Ask, Ownership

UNARY = 0.5
"""Seconds that the last calls of an older server have to end, such as an Allocate of a kubelet that has gone."""
HEARING = 0.2
"""Seconds that a kubelet has to read the last answers."""
FAREWELL = 0.3
"""Seconds that the ends of the streams have to be sent; a client that doesn't read never takes its end."""


class Endpoint:
    """Used from the event loop."""

    def __init__(
        self,
        ownership: Ownership,
        handlers: Handlers,
        group: asyncio.TaskGroup,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.ownership, self.handlers = ownership, handlers
        self._names, self._group, self._log = SocketNames(ownership), group, log
        self.socket, self.next = self._names.base, self._names.next
        self.bound = Signal()
        """Whenever a server was bound."""
        self._servers: list[Server] = []
        self._older: list[Server] = []
        """Servers that are being stopped."""
        self._bound: os.stat_result | None = None
        self._opening = asyncio.Lock()
        self._frozen = False

    async def open(self, ask: Ask | None = None) -> None:
        """Serves, once no other gateway does, or once one has lent the lock to ``ask``. Raises KubeletError, or OSError
        if the directory can't be used.
        """
        async with self._opening:
            if self.is_bound:
                return
            # A gateway that has served takes over from nobody: it would never follow the handover to its end.
            await self.ownership.acquire(ask if self._bound is None else None)
            self._names.sweep()
            await self._bind()
            self.bound.notify()

    @property
    def is_bound(self) -> bool:
        """Whether the socket that others would find is this gateway's."""
        if self._bound is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(self._bound, self.socket.stat())
        return False

    async def _bind(self) -> None:
        path = self._names.to_bind()
        server = Server(path, self.handlers.generic())
        try:
            await server.start()
            path.chmod(0o600)
            path.rename(self.socket)
            self._bound = self.socket.stat()
        except BaseException as error:  # also when the resource is stopped meanwhile
            await server.stop(None)
            if isinstance(error, RuntimeError | OSError):
                raise KubeletError(f"can't serve on {path}: {error}") from error
            raise
        self._servers.append(server)

    async def link(self) -> str:
        """A new endpoint, never registered before. If the bound socket is gone, binds another one first."""
        await self.open()
        self.handlers.make_ready()
        return self._names.link()

    def tidy(self) -> None:
        """A kubelet streams from the newest endpoint: older names go, and older servers that have no stream."""
        self._names.keep_newest()
        if self.handlers.running(STREAMS) == 1:
            *older, newest = self._servers
            self._servers, self._older = [newest], [*self._older, *older]
            for server in older:
                self._group.create_task(self._end(server), name=f"{self.handlers.name} end an older server")

    async def _end(self, server: Server) -> None:
        await server.stop(UNARY)
        self._older.remove(server)

    def paths(self) -> set[str]:
        """Where it is served, as it is bound, also by older servers that are being stopped."""
        return {server.path for server in (*self._older, *self._servers)}

    def connections(self) -> list[int]:
        """The descriptors of the connections that it has accepted."""
        ACCEPTED.look()
        return [one.descriptor for one in ACCEPTED.at({server.path for server in self._servers})]

    def end_streams(self) -> None:
        self.handlers.end_streams()

    def freeze(self) -> None:
        """Its streams stay open, without a word, until the process ends: :meth:`close` leaves the servers alone."""
        self._frozen = True

    async def drain(self, grace: float) -> None:
        """Refuses new calls, and waits up to ``grace`` seconds for Allocates in flight."""
        self.handlers.refuse()
        with contextlib.suppress(TimeoutError):
            await wait_for(self.handlers.done({Call.ALLOCATE}), grace)

    async def close(self) -> None:
        """Ends the streams and the servers, and removes the names."""
        if self._frozen:
            return
        self.handlers.refuse()
        self.handlers.end_streams()
        # Each stream ends before its connection. If a stream is open when the connection says goodbye, a kubelet 1.8 or
        # 1.9 (grpc-go 1.3.0) never sees the stream's end, and goes on counting the resource's devices.
        with contextlib.suppress(TimeoutError):
            await wait_for(self.handlers.done(STREAMS), FAREWELL)
        # A client that finds an answer and the end of its connection at once may take the end for the answer.
        servers = [*self._older, *self._servers]
        await ACCEPTED.read(self.paths(), HEARING)
        try:
            await asyncio.gather(*(server.stop(0.2) for server in servers))
        finally:
            self._names.remove()

    def abandon(self) -> None:
        """Removes the names at once, whatever still runs."""
        self._names.remove()

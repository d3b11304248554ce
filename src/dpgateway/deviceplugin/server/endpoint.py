"""The gRPC servers of one resource, and the names under which a kubelet finds them.

Theory of operation
    - Only the owner of the resource binds a socket, so :meth:`Endpoint.open` first acquires the ownership.
    - One server serves for the life of the resource. A hard link needs the bound name, so if the socket was deleted or
      the directory replaced, the next registration binds a second server. The first one's streams go on meanwhile,
      because a live stream outweighs a missing file. It is stopped once the only stream is the second server's.
    - Each registration makes a new link to the socket. Older links stay until a kubelet streams from the newest one.
    - ``_servers`` are in service, oldest first; ``_older`` are being stopped. ``_bound`` is the newest socket's stat,
      by which :attr:`Endpoint.is_bound` notices a deleted or foreign file at the path.
    - After :meth:`Endpoint.freeze` the servers outlive :meth:`Endpoint.close`, until the process ends.
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
from dpgateway.resource.ownership import Ask, LockState, Ownership

UNARY = 0.5
"""Grace in seconds for the last calls of an older server, such as an Allocate of a kubelet that is gone."""
HEARING = 0.2
"""Grace in seconds for a kubelet to read the last answers."""
FAREWELL = 0.3
"""Grace in seconds for the streams' ends to be sent; a client that doesn't read never gets its end."""


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
        self.socket, self.next = self._names.base, ownership.next
        self.bound = Signal()
        """Notified whenever a server was bound."""
        self._servers: list[Server] = []
        self._older: list[Server] = []
        """Servers that are being stopped."""
        self._bound: os.stat_result | None = None
        self._opening = asyncio.Lock()
        self._frozen = False

    async def open(self, ask: Ask | None = None) -> None:
        """Serves, as soon as the lock is free, or another gateway has lent it to ``ask``. Raises KubeletError, or
        OSError if the directory can't be used.
        """
        async with self._opening:
            if self.is_bound:
                return
            # Only a first opening may take over: plugin.Plugin follows a handover to its end only then.
            await self.ownership.acquire(ask if self._bound is None else None)
            # A lender takes the resource back if binding fails: it goes on at its names.
            borrowed = self.ownership.state is LockState.BORROWED
            if not borrowed:
                self._names.sweep()

            # Bound at a unique path, because gRPC unlinks that path when the server stops (``sockets``).
            path = self._names.to_bind()
            server = Server(path, self.handlers.generic())
            try:
                await server.start()
                path.chmod(0o600)
                path.rename(self.socket)
                self._bound = self.socket.stat()
                if borrowed:
                    self._names.sweep_links()
            except BaseException as error:  # also when the resource is stopped meanwhile
                await server.stop(None)
                if isinstance(error, RuntimeError | OSError):
                    raise KubeletError(f"can't serve on {path}: {error}") from error
                raise
            self._servers.append(server)
            self.bound.notify()

    @property
    def is_bound(self) -> bool:
        """Whether the socket at the path is this gateway's."""
        if self._bound is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(self._bound, self.socket.stat())
        return False

    async def link(self) -> str:
        """A new endpoint name, never registered before. Binds another server first if the bound socket is gone. Raises
        KubeletError, OSError.
        """
        # The socket is the newer gateway's, or will be: this one forwards calls to that path. And a kubelet that dials
        # for an earlier Register might do so after the newer one has registered.
        if self.ownership.lent or self.handlers.forwards:
            raise KubeletError("another gateway is taking the resource over")
        await self.open()
        self.handlers.make_ready()
        return self._names.link()

    def tidy(self) -> None:
        """A kubelet streams from the newest endpoint: removes older links, and stops older servers without a stream."""
        self._names.keep(1)
        # The only stream is the one that was just opened, so the older servers have none.
        if self.handlers.running(STREAMS) == 1:
            *older, newest = self._servers
            self._servers, self._older = [newest], [*self._older, *older]
            for server in older:
                self._group.create_task(self._end(server), name=f"{self.handlers.name} end an older server")

    async def _end(self, server: Server) -> None:
        await server.stop(UNARY)
        self._older.remove(server)

    def paths(self) -> set[str]:
        """The bound paths of all servers, also of those being stopped."""
        return {server.path for server in (*self._older, *self._servers)}

    def connections(self) -> list[int]:
        """Descriptors of the accepted connections."""
        ACCEPTED.look()
        return [one.descriptor for one in ACCEPTED.at({server.path for server in self._servers})]

    def freeze(self) -> None:
        """Keeps the streams open, silent, until the process ends: :meth:`close` leaves the servers alone."""
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
        # Streams end before their connections: if a GOAWAY finds a stream open, a kubelet 1.8 or 1.9 (grpc-go 1.3.0)
        # never sees the stream's end, and goes on counting the resource's devices.
        with contextlib.suppress(TimeoutError):
            await wait_for(self.handlers.done(STREAMS), FAREWELL)
        # A client that receives an answer together with its connection's end may report the end only.
        servers = [*self._older, *self._servers]
        await ACCEPTED.read(self.paths(), HEARING)
        try:
            await asyncio.gather(*(server.stop(0.2) for server in servers))
        finally:
            self._names.remove()

    def abandon(self) -> None:
        """Removes the names at once, without waiting for calls."""
        self._names.remove()

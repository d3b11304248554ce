"""The gRPC servers of one resource, and the names under which a kubelet finds them.

One server serves for the life of the resource. A second one is bound only if the socket was deleted or the directory
replaced, because a hard link needs the name. The first server's streams go on meanwhile, because they outweigh its
missing file. The first server ends once the only stream is the second server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from dpgateway.deviceplugin.server.handlers import Handlers
from dpgateway.deviceplugin.server.mute import Mutes
from dpgateway.deviceplugin.server.serving import Server
from dpgateway.deviceplugin.server.sockets import SocketNames
from dpgateway.deviceplugin.server.taking import TAKE, Misunderstood, Retries, Taking
from dpgateway.errors import KubeletError
from dpgateway.kit import unix
from dpgateway.kit.seqpacket import Gone, Listener, Peer
from dpgateway.kit.tasks import wait_for
from dpgateway.resource.ownership import Ownership

UNARY = 0.5
"""Seconds that the last calls of an older server have to end, such as an Allocate of a kubelet that has gone."""

ASKING = 1.0
"""Seconds between two tries to have a resource from the gateway that serves it."""
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
        self.handlers = handlers
        self._ownership, self._names = ownership, SocketNames(ownership)
        self._name, self._group, self._log = handlers.name, group, log
        self._servers: list[Server] = []
        self._older: list[Server] = []
        """Servers that are being stopped."""
        self._bound: os.stat_result | None = None
        self._opening = asyncio.Lock()
        self._warm: Callable[[], Awaitable[bool]] | None = None
        self._retries = Retries()
        self._asked: Callable[[Peer], None] = Peer.close
        self._listener: Listener | None = None
        self.mutes = Mutes()
        self._frozen = False
        self.taking: Taking | None = None
        """The talk with the gateway from which this one took over."""

    def follow(self, warm: Callable[[], Awaitable[bool]], retries: Retries | None = None) -> None:
        """Takes over from a gateway that serves already as soon as ``warm`` returns. Without this call it waits until
        that gateway ends.

        ``warm`` returns whether there is a healthy device. ``retries``: those of endpoints before this one.
        """
        self._warm, self._retries = warm, retries or self._retries

    def precede(self, asked: Callable[[Peer], None]) -> None:
        """From now on ``asked`` is called when a newer gateway wants to take over. Raises OSError."""
        self._asked = asked
        self._listener = Listener(self._names.next, asked)

    async def open(self) -> None:
        """Serves, once no other gateway does. Raises KubeletError or OSError if the directory can't be used."""
        async with self._opening:
            if self._is_bound():
                return
            follows = self._warm is not None and self._bound is None  # a gateway that has served takes over from nobody
            await self._ownership.acquire(self._ask if follows else None)
            self._names.sweep()
            await self._bind()
            if self._listener is not None:  # the directory may be another one
                before, self._listener = self._listener, Listener(self._names.next, self._asked)
                before.close()

    async def _ask(self) -> int:
        """The lock's descriptor, once the gateway that serves has passed it."""
        assert self._warm is not None  # noqa: S101  the caller looked
        told = False
        while True:
            await self._retries.pause()
            healthy = await self._warm()
            try:
                self.taking, lock = await self._ask_once(healthy=healthy)
            except Misunderstood as error:
                level = logging.WARNING if self._retries.failed(str(error)) else logging.DEBUG
                self._log.log(level, "the gateway that serves it can't hand it over: %s", error)
            except OSError as error:
                level = logging.DEBUG if healthy or told else logging.WARNING
                why = "" if healthy else "; this one has no healthy device, and nothing is taken from one that has any"
                self._log.log(level, "the gateway that serves it doesn't hand it over: %s%s", error, why)
                told = not healthy
                await asyncio.sleep(ASKING)
            else:
                return lock

    async def _ask_once(self, *, healthy: bool) -> tuple[Taking, int]:
        taking, lock = await Taking.ask(self._names.next, healthy=healthy)
        if self._ownership.is_it(lock):
            return taking, lock
        os.close(lock)
        taking.close()
        raise Misunderstood(f"{self._names.next}: expected {self._ownership.path}, locked, found another descriptor")

    def give(self, newer: Peer, api: str) -> None:
        """The newer gateway may serve from now on. Raises OSError."""
        newer.send(f"{TAKE} {api}", self._ownership.lend())

    def check_given(self) -> None:
        """The newer gateway says that it serves. Raises OSError unless it has bound another socket than this one's."""
        bound = self._names.base.lstat()
        if not stat.S_ISSOCK(bound.st_mode) or self._is_bound():
            raise Gone(f"it says that it serves, but {self._names.base} isn't a socket of its own")

    def given(self) -> Path:
        """Where the newer gateway serves; nothing there is ours any more."""
        return self._names.base

    def take_back(self) -> None:
        """The newer gateway has to let go."""
        self._ownership.take_back()

    def connections(self) -> list[int]:
        """The descriptors of the connections that it accepted, and of those that it holds for an older gateway."""
        return [*unix.accepted({server.path for server in self._servers}), *self.mutes.descriptors]

    def paths(self) -> set[str]:
        """Where it is served, as it is bound, also by older servers that are being stopped."""
        return {server.path for server in (*self._older, *self._servers)}

    def freeze(self) -> None:
        """Its streams stay open, without a word, until the process ends: the newer gateway holds their connections.

        gRPC would say goodbye on them, also if it was only forgotten. So keep this endpoint.
        """
        self._frozen = True

    def let_go(self) -> None:
        """The lock and all names are the newer gateway's."""
        self._ownership.release()

    def _is_bound(self) -> bool:
        if self._bound is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(self._bound, self._names.base.stat())
        return False

    async def _bind(self) -> None:
        path = self._names.to_bind()
        server = Server(path, self.handlers.generic())
        try:
            await server.start()
            path.chmod(0o600)
            path.rename(self._names.base)
            self._bound = self._names.base.stat()
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
        if self.handlers.streaming.value == 1:
            *older, newest = self._servers
            self._servers, self._older = [newest], [*self._older, *older]
            for server in older:
                self._group.create_task(self._end(server), name=f"{self._name} end an older server")

    async def _end(self, server: Server) -> None:
        await server.stop(UNARY)
        self._older.remove(server)

    def end_streams(self) -> None:
        self.handlers.end_streams()

    async def drain(self, grace: float) -> None:
        """Refuses new calls, and waits up to ``grace`` seconds for Allocates in flight."""
        self.handlers.refusing = True
        with contextlib.suppress(TimeoutError):
            await wait_for(self.handlers.quiet(), grace)

    async def close(self) -> None:
        """Ends the streams and the servers, and removes the names."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self.taking is not None:
            self.taking.close()
        self.mutes.close()
        if self._frozen:
            return
        self.handlers.refusing = True
        self.handlers.end_streams()
        # Each stream ends before its connection. If a stream is open when the connection says goodbye, a kubelet 1.8 or
        # 1.9 (grpc-go 1.3.0) never sees the stream's end, and goes on counting the resource's devices.
        with contextlib.suppress(TimeoutError):
            await wait_for(self.handlers.still(), FAREWELL)
        # A client that finds an answer and the end of its connection at once may take the end for the answer.
        servers = [*self._older, *self._servers]
        await unix.read_by_peers(self.paths(), HEARING)
        try:
            await asyncio.gather(*(server.stop(0.2) for server in servers))
        finally:
            self._names.remove()

    def abandon(self) -> None:
        """Removes the names at once, whatever still runs."""
        self._names.remove()

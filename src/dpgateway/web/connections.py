"""HTTP with limits: uvicorn's protocol on the gateway's own event loop.

uvicorn's server isn't used: it takes the process's signals, and wakes ten times a second to see whether it should stop.
Slow clients can't exhaust the gateway: the number of connections is limited, a new connection evicts the one that has
been idle longest, and there are timeouts for a request and for reading its answer. The work for a request ends with its
connection; a page that all share is made to its end (``pages``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any

from h11 import IDLE, SEND_RESPONSE  # of uvicorn
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from dpgateway.web.answers import Application, Limits, Receive, Scope, Send

LONGEST_HEAD = 8 * 1024
"""Bytes of a request's headers."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""struct linger: on, 0 s (socket(7))."""


class Connections:
    """The open connections.

    `_open` is ordered by the time since which a connection is idle: `enter` appends, `wait` moves to the end, a drop or
    a loss removes. At the limit a new connection evicts the first idle one, or the first of all if all are busy.
    """

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application, self.limits = application, limits
        self._config = Config(
            application,
            interface="asgi3",
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # else each malformed request is a line
            access_log=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=LONGEST_HEAD,
        )
        self._state = ServerState()
        self._open: dict[_Connection, None] = {}  # ordered, the longest idle first

    def make(self) -> asyncio.Protocol:
        """A protocol for an event loop's server."""
        return _Connection(self._config, self._state, self)

    def enter(self, one: _Connection) -> None:
        if len(self._open) >= self.limits.connections:
            idle = (other for other in self._open if not other.busy)
            next(idle, next(iter(self._open))).drop()
        self._open[one] = None

    def wait(self, one: _Connection) -> None:
        """Marks the connection as idle: moves it to the end of the order."""
        if self._open.pop(one, one) is None:
            self._open[one] = None

    def leave(self, one: _Connection) -> None:
        self._open.pop(one, None)

    async def close(self) -> None:
        """Closes all at once, including connections with an unfinished answer."""
        for one in tuple(self._open):
            one.drop()
        for task in (tasks := tuple(self._state.tasks)):
            task.cancel()
        await asyncio.sleep(0)  # connection_lost, which closes the socket, runs in the loop's next turn
        if tasks:
            await asyncio.wait(tasks)


class _Connection(H11Protocol):
    """A connection with one deadline at a time: for the request's headers, then for the answer's end. A connection past
    its deadline is reset.
    """

    def __init__(self, config: Config, state: ServerState, all_: Connections) -> None:
        super().__init__(config, state, {})
        self._all = all_
        self._answering: asyncio.Task[Any] | None = None
        """The task of the last request."""
        self.app = self._answer  # of each request, as uvicorn has it
        self._timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._all.enter(self)
        self._hurry(self._all.limits.asking)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and self.busy:
            self._hurry(self._all.limits.taking)

    def send_400_response(self, msg: str) -> None:
        # The body may be malformed of a request that has begun to get its answer, or has it: then no other one can be
        # sent. uvicorn would send it, and the request's own answer as well, which fails with a traceback each time.
        if self.conn.our_state not in {IDLE, SEND_RESPONSE}:
            self.drop()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._all.wait(self)
        self._hurry(self._all.limits.asking)
        before = self.cycle
        super().on_response_complete()  # may start the next pipelined request
        if self.cycle is not before and self.busy:
            self._hurry(self._all.limits.taking)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        if self._answering is not None:  # uvicorn lets it go on, up to the compression of megabytes for nobody
            self._answering.cancel()

    def drop(self) -> None:
        """Resets the connection."""
        self._all.leave(self)
        # Without SO_LINGER the kernel keeps the unread answer for minutes.
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._answering = asyncio.current_task()
        with contextlib.suppress(asyncio.CancelledError):  # uvicorn would log it
            await self._all.application(scope, receive, send)

    def _hurry(self, seconds: float) -> None:
        """Drops the connection in ``seconds``, instead of at its present deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.drop)

"""The older gateway's side of a handover, for one resource (``protocol``).

Theory of operation. A resource passes through these states:

    SERVING   this gateway serves it; a newer one may have asked for it
    PARKED    this gateway decides nothing: calls wait or are forwarded; driver and journal rest
    LEAVING   as PARKED, and the newer gateway registers; nothing is sent on the streams
    GIVEN     it is the newer gateway's; this one ends its streams, and waits for the lock
    BROKEN    the handover failed or was broken off: the resource starts over in this gateway

If the newer gateway doesn't serve, PARKED returns to SERVING as if nothing had happened. Only the coordinator changes
the state, of the whole pool together.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import stat
from collections.abc import Callable
from dataclasses import dataclass

from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.handover.parked import ParkedConnections
from dpgateway.deviceplugin.handover.protocol import BACK, LISTED, POOR, REGISTER, SERVES, TAKE, keeps_one_client
from dpgateway.deviceplugin.handover.proxy import Decided, Proxy
from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.seqpacket import Gone, Listener, Peer
from dpgateway.resource.journal import JournalWriter

LISTING = 10.0
"""Timeout in seconds for the newer gateway to register and send its list; the kubelet dials for up to 10 s."""
_LOOK = 0.02
"""Seconds between two polls of the driver and the registration."""
_LISTENING = 1.0
"""Seconds until the next attempt to listen."""


class HandoverState(enum.Enum):
    """Progress of one resource's handover: see the top of this file."""

    SERVING = enum.auto()
    PARKED = enum.auto()
    LEAVING = enum.auto()
    GIVEN = enum.auto()
    BROKEN = enum.auto()


@dataclass(eq=False)
class OlderSide:
    """The older side for one resource, for the life of its plugin. Used from the event loop."""

    calls: KubeletCalls
    endpoint: Endpoint
    registrar: Registrar
    journal: JournalWriter
    parked: ParkedConnections
    log: logging.LoggerAdapter[logging.Logger]

    def __post_init__(self) -> None:
        self.name = self.calls.name
        self._asked: Callable[[Peer], None] = Peer.close
        self._listener: Listener | None = None
        self._deaf = Complaint(
            self.log, "no newer gateway can take it over: %s", "a newer gateway can take it over again"
        )
        self._proxy = Proxy(self.name, self.log)
        self.newer: Peer | None = None
        """The gateway that gets the resource, or failed to take it."""
        self.wanted = ""
        """The request of that gateway."""
        self.state = HandoverState.SERVING
        self._freezes = False
        """Whether the kubelet would end the newer gateway's stream along with this one's (``keeps_one_client``)."""
        self.frozen: Endpoint | None = None
        """After such a handover, the endpoint, to be kept until the process ends."""
        self.ending = False
        """Whether the resource ends here. A newer gateway that is registering goes on without this one."""
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """The outcome: True if the resource is another gateway's, False if it must start over here."""

    def listen(self, asked: Callable[[Peer], None]) -> None:
        """Listens for newer gateways, and calls ``asked`` with each one that dials. Raises OSError."""
        self._asked, self._listener = asked, Listener(self.endpoint.next, asked)
        self.endpoint.bound.subscribe(self._listen_again)

    def _listen_again(self) -> None:
        """Another server was bound, perhaps in a replaced directory. Repeated until this gateway listens there."""
        if self._listener is None or self.over.done():  # once it is given, the newer gateway listens there
            return
        try:
            before, self._listener = self._listener, Listener(self.endpoint.next, self._asked)
        except OSError as error:
            self._deaf.say(f"can't listen at {self.endpoint.next}: {error.strerror or error}")
            asyncio.get_running_loop().call_later(_LISTENING, self._listen_again)
        else:
            self._deaf.over()
            before.close()

    def keeps_from(self, wanted: str) -> bool:
        """Whether the kubelet would lose healthy devices to a gateway without any, which asks by ``wanted``."""
        return wanted == POOR and self.calls.driver.healthy

    def meet(self, newer: Peer, wanted: str) -> None:
        """``newer`` gets the resource; an earlier peer has failed to take it."""
        if self.newer is not None:
            self.newer.close()
        self.newer, self.wanted = newer, wanted

    @property
    def idle(self) -> bool:
        """Whether no call is unanswered, the driver isn't working on a device, and no Register waits for its stream: a
        kubelet opens the stream even of a cancelled Register, and may then call this gateway instead of the newer one.
        """
        lanes = self.calls.driver.lanes
        works = self.calls.inventory.usage.value.abandoned or (lanes is not None and not lanes.preparing.idle)
        return not (self.endpoint.handlers.running() or works or self.registrar.registering)

    @property
    def forsaken(self) -> bool:
        """Whether the gateway that gets the resource has let go of it, or has ended."""
        return self._peer.gone

    async def settle(self) -> None:
        """Returns once it was idle; new calls may have come by then."""
        while not self.idle:
            await self.endpoint.handlers.done()
            if not self.idle:
                await asyncio.sleep(_LOOK)  # the end of a driver's call or of a Register has no event

    # the coordinator's steps, in order

    def park(self) -> None:
        """Holds calls back, and pauses releases."""
        self.state = HandoverState.PARKED
        self._proxy = Proxy(self.name, self.log)
        self.endpoint.handlers.forward(self._proxy.answer)
        self.calls.releases.rest()

    async def give(self) -> None:
        """Lends the lock, and waits until the newer gateway serves. Raises OSError."""
        # The newer gateway reads the journal as soon as it has the lock.
        await self.journal.rest()
        self._peer.send(f"{TAKE} {self.calls.api.name}", self.endpoint.ownership.lend())
        await self._hear(SERVES)
        bound = self.endpoint.socket.lstat()
        if not stat.S_ISSOCK(bound.st_mode) or self.endpoint.is_bound:
            raise Gone(f"it says that it serves, but {self.endpoint.socket} isn't a socket of its own")

    def pass_on(self, decided: Decided) -> None:
        """Forwards calls to the newer gateway. Raises OSError."""
        self._proxy.serves(self.endpoint.socket, decided, self.calls.agent, prepares=self.calls.allocate_prepares)

    async def take_back(self) -> None:
        """Serves again, as if nothing had happened."""
        self._say_back()
        self.state = HandoverState.SERVING
        self.endpoint.handlers.forward(None)
        self.journal.go_on()
        self.calls.releases.go_on()
        await self._proxy.end()

    async def leave(self) -> None:
        """Lets the newer gateway register. Returns when the kubelet has its list, or no kubelet streams from here.
        Raises OSError, also TimeoutError.
        """
        # An idle moment: calls in flight get their answers before the kubelet learns of the newer gateway.
        await self.endpoint.handlers.done()
        streaming = self.registrar.streaming
        self.registrar.stop()
        self.endpoint.handlers.lists.hush()
        self.state = HandoverState.LEAVING
        self._proxy.owns()
        passed: list[int] = []
        if streaming and keeps_one_client(self.calls.agent):
            # The newer gateway keeps these connections open, silent. gRPC would send GOAWAY on them, even when the
            # server is only garbage-collected, so the endpoint is kept until the process ends.
            self._freezes = True
            passed = [*self.endpoint.connections(), *self.parked.descriptors]
        self._peer.send(REGISTER, *passed)
        if streaming:
            async with asyncio.timeout(LISTING):
                await self._hear(LISTED)

    def let_go(self) -> None:
        """Passes the ownership to the newer gateway."""
        self.log.info("handed over to another gateway")
        self.endpoint.ownership.release()
        if self._freezes:
            self.endpoint.freeze()
            self.frozen = self.endpoint
        self.state = HandoverState.GIVEN
        self.over.set_result(True)

    def break_off(self) -> None:
        """Ends a handover that hasn't succeeded, perhaps because this resource or another of its pool ends."""
        if self.over.done():
            return
        if self.ending:
            if self.state is HandoverState.LEAVING:
                self.let_go()  # the newer gateway goes on without this one
        elif self.state is HandoverState.SERVING:
            self._peer.close()  # it may ask again
        else:
            self._say_back()
            self.state = HandoverState.BROKEN
            self.over.set_result(False)

    async def _hear(self, expected: str) -> None:
        if (heard := await self._peer.receive()) != expected:
            raise Gone(f"the other gateway: expected {expected!r}, found {heard!r}")

    def _say_back(self) -> None:
        with contextlib.suppress(OSError):
            self._peer.send(BACK)
        self._peer.close()
        self.endpoint.ownership.take_back()

    @property
    def _peer(self) -> Peer:
        assert self.newer is not None  # noqa: S101  it asked
        return self.newer

    # the end of the resource in this gateway

    def begin_to_end(self) -> None:
        """Ignores newer gateways from now on."""
        self.ending = True

    async def end(self) -> None:
        """Stops forwarding calls."""
        # The newer gateway has the lock, and won't hear of what this one decides.
        if self.endpoint.ownership.lent:
            self.endpoint.handlers.refuse()
        await self._proxy.end()
        if self.state is not HandoverState.GIVEN and self.newer is not None:
            self.newer.close()  # its request is refused

    def close(self) -> None:
        """Closes the connection, for which the newer gateway waits: all streams of this gateway have ended."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self.newer is not None:
            self.newer.close()

"""The older gateway's side of a handover, for one resource (``protocol``).

The resource walks through these states, each of which includes what the one before it says:

    SERVING   it is served by this gateway; a newer one may have asked for it
    PARKED    nothing is decided: calls wait, or are the proxy's; neither driver nor journal is told anything
    LEAVING   the newer gateway registers; nothing is sent on the streams
    GIVEN     it is the newer gateway's; this one ends its streams, and waits for the lock
    BROKEN    the handover failed, or broke off: the resource begins again in this gateway

PARKED goes back to SERVING as if nothing had happened if the newer gateway doesn't serve. The coordinator alone moves a
resource from state to state, together with the rest of its pool.
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
from dpgateway.deviceplugin.handover.protocol import BACK, LISTED, REGISTER, SERVES, TAKE, keeps_one_client
from dpgateway.deviceplugin.handover.proxy import Decided, Proxy
from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.kit.seqpacket import Gone, Listener, Peer
from dpgateway.resource.journal import JournalWriter

LISTING = 10.0
"""Seconds that the newer gateway has to register and send its list; the kubelet dials for up to 10 s."""
_LOOK = 0.02
"""Seconds between two looks at what the driver does, and at the registration."""


class HandoverState(enum.Enum):
    """How far one resource has been handed over: see the top of this file."""

    SERVING = enum.auto()
    PARKED = enum.auto()
    LEAVING = enum.auto()
    GIVEN = enum.auto()
    BROKEN = enum.auto()


@dataclass(frozen=True)
class ServedResource:
    """What a handover has to do with, of a resource that this gateway serves."""

    resource: KubeletCalls
    endpoint: Endpoint
    registrar: Registrar
    journal: JournalWriter
    parked: ParkedConnections
    log: logging.LoggerAdapter[logging.Logger]


class OlderSide:
    """Of one resource, for the life of its plugin. Used from the event loop."""

    def __init__(self, served: ServedResource) -> None:
        self.name, self._log = served.resource.name, served.log
        self._resource, self._endpoint, self._registrar = served.resource, served.endpoint, served.registrar
        self._journal, self._parked = served.journal, served.parked
        self._asked: Callable[[Peer], None] = Peer.close
        self._listener: Listener | None = None
        self._proxy = Proxy(self.name, self._log)
        self.newer: Peer | None = None
        """The gateway that asked for the resource last."""
        self.state = HandoverState.SERVING
        self._freezes = False
        """Whether the end of this gateway's streams would end those of the newer one."""
        self.frozen: Endpoint | None = None
        """What must be kept until the process ends, once the resource is the newer gateway's."""
        self.ending = False
        """Whether the resource ends here. A newer gateway that serves it already goes on without this one."""
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the resource is another gateway's now; False if it must begin again here."""

    def listen(self, asked: Callable[[Peer], None]) -> None:
        """From now on ``asked`` gets each gateway that dials. Raises OSError."""
        self._asked, self._listener = asked, Listener(self._endpoint.next, asked)
        self._endpoint.bound.subscribe(self._listen_again)

    def _listen_again(self) -> None:
        """A server was bound once more, perhaps in another directory."""
        if self._listener is not None:
            before, self._listener = self._listener, Listener(self._endpoint.next, self._asked)
            before.close()

    def meet(self, newer: Peer) -> None:
        """This gateway asks for the resource; the one that asked before has died, or asks once more."""
        if self.newer is not None:
            self.newer.close()
        self.newer = newer

    @property
    def idle(self) -> bool:
        """Whether no call is unanswered, the driver does nothing to a device, and no Register waits for its stream: a
        kubelet opens the stream of a Register that was given up, and may then call this gateway instead of the newer.
        """
        return not self._endpoint.handlers.running() and self._resource.idle and not self._registrar.registering

    @property
    def forsaken(self) -> bool:
        """Whether the gateway that asked for it has ended."""
        return self._peer.gone

    @property
    def healthy(self) -> bool:
        """Whether a gateway without any healthy device would take some away."""
        return self._resource.driver.healthy

    async def settle(self) -> None:
        """Returns once it was idle; there may be other calls by now."""
        while not self.idle:
            await self._endpoint.handlers.done()
            if not self.idle:
                await asyncio.sleep(_LOOK)  # a preparation, a release, a Register: nothing tells when it ends

    # what the coordinator does with it, in this order

    def park(self) -> None:
        """From now on calls wait, and the driver isn't told what is free."""
        self.state = HandoverState.PARKED
        self._proxy = Proxy(self.name, self._log)
        self._endpoint.handlers.forward(self._proxy.answer)
        self._resource.rest()

    async def give(self) -> None:
        """Returns when the newer gateway serves. Raises OSError."""
        await self._journal.rest()
        self._peer.send(f"{TAKE} {self._resource.api.name}", self._endpoint.ownership.lend())
        await self._hear(SERVES)
        bound = self._endpoint.socket.lstat()
        if not stat.S_ISSOCK(bound.st_mode) or self._endpoint.is_bound:
            raise Gone(f"it says that it serves, but {self._endpoint.socket} isn't a socket of its own")

    def pass_on(self, decided: Decided) -> None:
        """From now on the newer gateway gets the calls. Raises OSError."""
        self._proxy.serves(self._endpoint.socket, decided)

    async def take_back(self) -> None:
        """Serves on as if nothing had happened."""
        self._say_back()
        self.state = HandoverState.SERVING
        self._endpoint.handlers.forward(None)
        self._journal.go_on()
        self._resource.go_on()
        await self._proxy.end()

    async def leave(self) -> None:
        """Returns when the kubelet has the list of the newer gateway, or there is no kubelet to get one. Raises
        OSError, also TimeoutError.
        """
        await self._endpoint.handlers.done()
        streaming = self._registrar.streaming
        self._registrar.stop()
        self._endpoint.handlers.hush()
        self.state = HandoverState.LEAVING
        self._proxy.owns()
        passed: list[int] = []
        if streaming and keeps_one_client(self._resource.agent):
            # The newer gateway holds these connections, on which nobody says a word until the process ends. gRPC would
            # say goodbye on them, also if it was only forgotten, so the endpoint must be kept, too.
            self._freezes = True
            passed = [*self._endpoint.connections(), *self._parked.descriptors]
        self._peer.send(REGISTER, *passed)
        if streaming:
            async with asyncio.timeout(LISTING):
                await self._hear(LISTED)

    def let_go(self) -> None:
        """The resource is the newer gateway's."""
        self._log.info("handed over to another gateway")
        self._endpoint.ownership.release()
        if self._freezes:
            self._endpoint.freeze()
            self.frozen = self._endpoint
        self.state = HandoverState.GIVEN
        self.over.set_result(True)

    def break_off(self) -> None:
        """The handover is over, perhaps because this resource ends, or another one of its pool."""
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
        self._endpoint.ownership.take_back()

    @property
    def _peer(self) -> Peer:
        assert self.newer is not None  # noqa: S101  it asked
        return self.newer

    # the end of the resource in this gateway

    def begin_to_end(self) -> None:
        """From now on no newer gateway is heard."""
        self.ending = True

    async def end(self) -> None:
        """Nothing is passed on any more."""
        await self._proxy.end()
        if self.state is not HandoverState.GIVEN and self.newer is not None:
            self.newer.close()  # it has asked, and gets nothing

    def close(self) -> None:
        """All streams of this gateway have ended, which is what a newer one waits for."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self.newer is not None:
            self.newer.close()

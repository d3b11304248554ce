"""The older gateway's side of a handover: one resource, and the coordinator of all (``protocol``).

A resource walks through these states, each of which includes what the one before it says:

    SERVING   it is served by this gateway; a newer one may have asked for it
    PARKED    nothing is decided: calls wait, or are the proxy's; neither driver nor journal is told anything
    LEAVING   the newer gateway registers; nothing is sent on the streams
    GIVEN     it is the newer gateway's; this one ends its streams, and waits for the lock
    BROKEN    the handover failed after LEAVING or broke off: the resource begins again in this gateway

PARKED goes back to SERVING as if nothing had happened if the newer gateway doesn't serve. The coordinator alone moves a
resource through the states, together with the rest of its pool, because each resource of a pool must know what the
others have given away. One pool at a time is handed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpgateway.deviceplugin.handover.parked import ParkedConnections
from dpgateway.deviceplugin.handover.protocol import (
    ASK,
    BACK,
    LISTED,
    POOR,
    REGISTER,
    SERVES,
    TAKE,
    Retries,
    keeps_one_client,
)
from dpgateway.deviceplugin.handover.proxy import Decided, Proxy
from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.resource import Resource
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.kit.log import bind
from dpgateway.kit.seqpacket import Gone, Listener, Peer
from dpgateway.kit.tasks import wait_for
from dpgateway.resource.journal_writer import Remembering

ASKING = 1.0
"""Seconds in which whoever dials says what it wants."""
SERVING = 2.0
"""Seconds that the newer gateway has to serve. Calls of the kubelet wait meanwhile."""
SERVING_EACH = 0.05
"""Seconds more for each resource of a large pool: it reads a journal and binds a socket for each of them."""
LISTING = 10.0
"""Seconds that it has to register and send its list; the kubelet dials for up to 10 s."""
LINGER = 0.1
"""Seconds in which a kubelet may still call the older gateway, because it chose that before it knew the newer one."""
_LOOK = 0.02
"""Seconds between two looks at what the driver does, and at the registration."""

_log = bind(__name__)


class Stage(enum.Enum):
    """How far one resource has been handed over: see the top of this file."""

    SERVING = enum.auto()
    PARKED = enum.auto()
    LEAVING = enum.auto()
    GIVEN = enum.auto()
    BROKEN = enum.auto()


@dataclass(frozen=True)
class ServedResource:
    """What a handover has to do with, of a resource that this gateway serves."""

    resource: Resource
    endpoint: Endpoint
    registrar: Registrar
    journal: Remembering
    parked: ParkedConnections
    log: logging.LoggerAdapter[logging.Logger]


class OlderSide:
    """Of one resource, for the life of its plugin. Used from the event loop."""

    def __init__(self, served: ServedResource, coordinator: Coordinator) -> None:
        self.name, self._log = served.resource.name, served.log
        self._resource, self._endpoint, self._registrar = served.resource, served.endpoint, served.registrar
        self._journal, self._parked = served.journal, served.parked
        self._coordinator = coordinator
        self._listener: Listener | None = None
        self._proxy = Proxy(self.name, self._log)
        self.newer: Peer | None = None
        """The gateway that asked for the resource last."""
        self.stage = Stage.SERVING
        self._freezes = False
        """Whether the end of this gateway's streams would end those of the newer one."""
        self.ending = False
        """Whether the resource ends here. A newer gateway that serves it already goes on without this one."""
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the resource is another gateway's now; False if it must begin again here."""

    def listen(self) -> None:
        """From now on a newer gateway may ask. Raises OSError."""
        self._bind()
        self._endpoint.bound.subscribe(self._bind)  # the directory may be another one then

    def meet(self, newer: Peer) -> None:
        """This gateway asks for the resource; the one that asked before has died, or asks once more."""
        if self.newer is not None:
            self.newer.close()
        self.newer = newer

    def _bind(self) -> None:
        before = self._listener
        self._listener = Listener(self._endpoint.next, lambda newer: self._coordinator.asked(self, newer))
        if before is not None:
            before.close()

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
        self.stage = Stage.PARKED
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
        self.stage = Stage.SERVING
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
        self.stage = Stage.LEAVING
        self._proxy.owns()
        passed: list[int] = []
        if streaming and keeps_one_client(self._resource.agent):
            # The newer gateway holds these connections, on which nobody says a word until the process ends. gRPC would
            # say goodbye on them, also if it was only forgotten, so the coordinator keeps the endpoint.
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
            self._coordinator.keep(self._endpoint)
        self._decide(Stage.GIVEN)

    def break_off(self) -> None:
        """The handover is over, perhaps because this resource ends, or another one of its pool."""
        if self.over.done():
            return
        if self.ending:
            if self.stage is Stage.LEAVING:
                self.let_go()  # the newer gateway goes on without this one
        elif self.stage is Stage.SERVING:
            self._peer.close()  # it may ask again
        else:
            self._say_back()
            self._decide(Stage.BROKEN)

    async def _hear(self, expected: str) -> None:
        if (heard := await self._peer.hear()) != expected:
            raise Gone(f"the other gateway: expected {expected!r}, found {heard!r}")

    def _decide(self, stage: Stage) -> None:
        self.stage = stage
        if not self.over.done():
            self.over.set_result(stage is Stage.GIVEN)

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

    async def end(self, grace: float) -> None:
        """A handover that has begun ends within ``grace`` seconds; what was passed on is answered."""
        self.ending = True
        await self._coordinator.end(self, grace)
        await self._proxy.end()
        if self.stage is not Stage.GIVEN and self.newer is not None:
            self.newer.close()  # it has asked, and gets nothing

    def close(self) -> None:
        """All streams of this gateway have ended, which is what a newer one waits for."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self.newer is not None:
            self.newer.close()


class Coordinator:
    """Hands over all resources of a kubelet, pool by pool. Used from the event loop."""

    def __init__(self, together: Callable[[str], Sequence[str]], group: asyncio.TaskGroup) -> None:
        """``together``: this resource, and those of its pool that this gateway may serve. ``group``: for its tasks."""
        self._together, self._group = together, group
        self._asked: dict[str, OlderSide] = {}
        """Those for which a newer gateway has asked, and the rest of whose pool it hasn't asked for yet."""
        self._turn = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        """The handover of each resource that is being handed over, or waits for its turn."""
        self._kept: list[Endpoint] = []
        self._retries: dict[str, Retries] = {}

    def retries(self, resource: str) -> Retries:
        """Of handovers of the resource, in either role. They outlive its plugin."""
        return self._retries.setdefault(resource, Retries())

    def keep(self, endpoint: Endpoint) -> None:
        """Until the process ends."""
        self._kept.append(endpoint)

    def asked(self, one: OlderSide, newer: Peer) -> None:
        """Another gateway dialled."""
        if one.ending:
            newer.close()
            return
        task = self._group.create_task(self._meet(one, newer), name=f"{one.name} newer gateway")
        task.add_done_callback(lambda _: newer.close() if one.newer is not newer else None)

    async def _meet(self, one: OlderSide, newer: Peer) -> None:
        """Begins the handover if this gateway asks for the last resource of the pool. Anybody else is hung up on."""
        try:
            async with asyncio.timeout(ASKING):
                wanted = await newer.hear()
        except (OSError, TimeoutError):
            return
        if wanted != ASK and not (wanted == POOR and not one.healthy):
            return
        # Newer gateways of the first releases ask again at once after a failure.
        if one.ending or one.over.done() or one.name in self._running or not self.retries(one.name).due:
            return
        one.meet(newer)

        # A gateway that has asked and died since may never ask for the rest of its pool.
        self._asked[one.name] = one
        self._asked = {name: other for name, other in self._asked.items() if not other.forsaken}
        names = self._together(one.name)
        if self._asked.keys() >= set(names):
            pool = [self._asked.pop(name) for name in names]
            task = self._group.create_task(self._hand_over(pool), name=f"hand over {', '.join(names)}")
            self._running |= dict.fromkeys(names, task)
            task.add_done_callback(lambda _: self._handed_over(pool))

    def _handed_over(self, pool: Sequence[OlderSide]) -> None:
        for one in pool:
            self._running.pop(one.name, None)
            one.break_off()

    async def _hand_over(self, pool: Sequence[OlderSide]) -> None:
        """Once it is the pool's turn, and nothing of it is under way."""
        begun = False
        while not begun:
            for one in pool:
                await one.settle()
            async with self._turn:
                if begun := all(one.idle for one in pool):
                    await self._hand_over_now(pool)

    async def _hand_over_now(self, pool: Sequence[OlderSide]) -> None:
        """All of them, or none. What is cancelled or fails here is broken off by :meth:`_handed_over`."""
        for one in pool:
            one.park()

        # No call is passed on before the whole pool is served: nothing has been given away, so all can be taken back.
        seconds, decided, failure = SERVING + SERVING_EACH * (len(pool) - 1), Decided(), ""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for one in pool:
                    group.create_task(one.give(), name=f"give {one.name}")
            for one in pool:
                one.pass_on(decided)
        except* OSError as errors:  # also TimeoutError
            failure = str(errors.exceptions[0]) or f"it hasn't served within {seconds:g} s"
        if failure:
            self._complain(pool, "so this one serves on", failure)
            for one in pool:
                await one.take_back()
            return

        # Each registers; what has registered waits for the rest of its pool.
        try:
            for one in pool:
                await one.leave()
        except OSError as error:  # also TimeoutError
            failure = str(error) or f"it hasn't registered within {LISTING:g} s"
            self._complain(pool, "so this one registers again", failure)
            return

        # Nothing is awaited here, so no resource of a pool is another gateway's before all are.
        for one in pool:
            self.retries(one.name).succeeded()
            one.let_go()

    def _complain(self, pool: Sequence[OlderSide], consequence: str, failure: str) -> None:
        """Warns once for each cause, because a newer gateway may try again for hours."""
        news = [self.retries(one.name).failed(failure) for one in pool]
        level = logging.WARNING if any(news) else logging.DEBUG
        names = ", ".join(one.name for one in pool)
        _log.log(level, "the gateway that takes %s over failed, %s: %s", names, consequence, failure)

    async def end(self, one: OlderSide, grace: float) -> None:
        """The resource ends here; a handover that has begun, within ``grace`` seconds."""
        self._asked.pop(one.name, None)
        task = self._running.get(one.name)
        if task is not None and not one.over.done():  # else it ends nothing of the others
            if one.stage is not Stage.SERVING:
                await asyncio.wait({task}, timeout=grace)
            task.cancel()
            await asyncio.wait({task})
        if one.stage is Stage.GIVEN:
            await asyncio.sleep(LINGER)
            with contextlib.suppress(TimeoutError):  # what was passed on is answered
                await wait_for(one.settle(), grace)

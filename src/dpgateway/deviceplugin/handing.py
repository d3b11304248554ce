"""Hands resources over to a newer gateway, without a call that stays unanswered: the older gateway's side.

What the two say to each other is in ``server.taking``; why, in docs/design/handover.md. Resources of one pool are given
in one moment, because each of them must know what the others have given away. One after the other registers, because
many at once would wait for each other without a list at the kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Sequence

from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.remembering import Remembering
from dpgateway.deviceplugin.resource import Resource
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.successor import Successor
from dpgateway.deviceplugin.server.taking import ASK, BACK, LISTED, POOR, REGISTER, SERVES
from dpgateway.process.log import bind
from dpgateway.process.peers import Gone, Peer
from dpgateway.process.tasks import within

ASKING = 1.0
"""Seconds in which whoever dials says what it wants."""
SERVING = 2.0
"""Seconds that the newer gateway has to serve. Calls of the kubelet wait meanwhile."""
LISTING = 10.0
"""Seconds that it has to register and send its list; the kubelet dials for up to 10 s."""
LINGER = 0.1
"""Seconds in which a kubelet may still call the older gateway, because it chose that before it knew the newer one."""
_LOOK = 0.02
"""Seconds between two looks at what the driver does, and at the registration."""

_ONE_CLIENT = (1, 47), (1, 81)
"""grpc-go of the kubelets 1.25, and of 1.37, the first after those that keep one client for each resource."""

_log = bind(__name__)


def keeps_one_client(agent: str) -> bool:
    """Whether the end of an older stream ends the newer one, as in a kubelet 1.25 to 1.36 (#121994); also if ``agent``,
    the kubelet's user agent, doesn't tell.
    """
    match = re.match(r"grpc-go/(\d+)\.(\d+)", agent)
    return match is None or _ONE_CLIENT[0] <= (int(match[1]), int(match[2])) < _ONE_CLIENT[1]


class Member:
    """One resource that is served, and may be handed over. Used from the event loop."""

    def __init__(
        self,
        resource: Resource,
        endpoint: Endpoint,
        registrar: Registrar,
        remembering: Remembering,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.name, self._log = resource.name, log
        self._resource, self._endpoint = resource, endpoint
        self._handlers = endpoint.handlers
        self._registrar, self._remembering = registrar, remembering
        self._successor = Successor()
        self.ending = False
        """Whether the resource ends. A newer gateway that serves it already goes on without this one."""
        self.newer: Peer | None = None
        """The gateway that asked for it."""
        self.given: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether it is another gateway's now; False if it must begin again, because that gateway failed."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for it, its driver does nothing to a device, and it waits for no stream: a kubelet opens
        the stream of a Register that was given up, and may then call this gateway instead of the newer one.
        """
        return not self._handlers.calls.value and self._resource.idle and not self._registrar.registering

    @property
    def healthy(self) -> bool:
        """Whether a gateway without any healthy device would take some away."""
        return self._resource.driver.healthy

    @property
    def forsaken(self) -> bool:
        """Whether the gateway that asked for it has ended."""
        return self._peer.gone

    @property
    def parked(self) -> bool:
        """Whether this gateway decides nothing any more."""
        return self._handlers.successor is not None

    async def settle(self) -> None:
        """Returns once it was idle; there may be other calls by now."""
        while not self.idle:
            await self._handlers.idle()
            if not self.idle:
                await asyncio.sleep(_LOOK)  # a preparation, a release, a Register: nothing tells when it ends

    def park(self) -> None:
        """From now on calls wait, and the driver isn't told what is free."""
        self._handlers.successor = self._successor = Successor()
        self._resource.releases.resting = self._resource.repeating.resting = True

    async def give(self) -> None:
        """Returns when the newer gateway serves. Raises OSError."""
        await self._remembering.rest()
        self._endpoint.give(self._peer, self._resource.api.name)
        await self._hear(SERVES)

    def pass_on(self) -> None:
        """From now on the newer gateway gets the calls. Raises OSError."""
        self._successor.serves(self._endpoint.given())

    async def take_back(self) -> None:
        """Serves on as if nothing had happened."""
        self._say_back()
        self._handlers.successor = None
        self._remembering.go_on()
        self._resource.releases.resting = self._resource.repeating.resting = False
        self._resource.releases.tell()
        await self._successor.end()

    def break_off(self) -> None:
        """The handover is over, perhaps because another resource of the pool ends: then this one isn't given."""
        if self.ending or self.given.done():
            return
        if self.parked:
            self._say_back()
            self._decide(given=False)
        else:
            self._peer.close()  # it may ask again

    async def leave(self) -> Endpoint | None:
        """The newer gateway registers; what was asked here is answered, then the lock is let go.

        Returns what must be kept until the process ends, if anything must.
        """
        frozen = None
        try:
            await self._handlers.idle()
            streaming = self._registrar.streaming
            self._registrar.stop()
            if streaming and keeps_one_client(self._resource.agent):
                frozen = self._endpoint
            self._peer.send(REGISTER, *(frozen.connections() if frozen is not None else ()))
            if streaming:
                async with asyncio.timeout(LISTING):
                    await self._hear(LISTED)
            await self._handlers.idle()
        except (OSError, TimeoutError) as error:
            self._log.warning("the gateway that takes over failed, so this one registers again: %s", error)
            self._say_back()
            self._decide(given=False)
            return None
        else:
            self._log.info("handed over to another gateway")
            self._successor.owns()
            self._endpoint.let_go()
            if frozen is not None:
                frozen.freeze()
            self._decide(given=True)
            return frozen

    async def _hear(self, expected: str) -> None:
        if (heard := await self._peer.hear()) != expected:
            raise Gone(f"the other gateway: expected {expected!r}, found {heard!r}")

    def _decide(self, *, given: bool) -> None:
        if not self.given.done():
            self.given.set_result(given)

    def _say_back(self) -> None:
        with contextlib.suppress(OSError):
            self._peer.send(BACK)
        self._peer.close()
        self._endpoint.take_back()

    @property
    def _peer(self) -> Peer:
        assert self.newer is not None  # noqa: S101  it asked
        return self.newer

    async def end(self) -> None:
        """Passes nothing on any more. Whoever asked and has got nothing hears so."""
        await self._successor.end()
        if not (self.given.done() and self.given.result()):
            self.close()

    def close(self) -> None:
        """Tells a newer gateway that has got the resource that all streams of this one have ended."""
        if self.newer is not None:
            self.newer.close()


class Handing:
    """One for all resources of a kubelet. Used from the event loop."""

    def __init__(self, together: Callable[[str], Sequence[str]], group: asyncio.TaskGroup) -> None:
        """``together``: the resources of the pool in which this one is, and itself. ``group``: for what it runs."""
        self._together, self._group = together, group
        self._asked: dict[str, Member] = {}
        """Those for which a newer gateway has asked, and the rest of whose pool it hasn't asked for yet."""
        self._turn = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._frozen: list[Endpoint] = []

    def asked(self, member: Member, newer: Peer) -> None:
        """Another gateway dialled."""
        if member.ending:
            newer.close()
            return
        task = self._group.create_task(self._meet(member, newer), name=f"{member.name} newer gateway")
        task.add_done_callback(lambda _: newer.close() if member.newer is not newer else None)

    async def _meet(self, member: Member, newer: Peer) -> None:
        try:
            async with asyncio.timeout(ASKING):
                wanted = await newer.hear()
        except (OSError, TimeoutError):
            wanted = ""
        if wanted != ASK and not (wanted == POOR and not member.healthy):
            return
        if member.name in self._running or member.given.done() or member.ending:
            return
        if member.newer is not None:
            member.newer.close()  # it has died, or asks once more
        member.newer = newer
        self._asked[member.name] = member
        for name in [name for name, other in self._asked.items() if other.forsaken]:
            self._asked.pop(name)
        names = self._together(member.name)
        if self._asked.keys() >= set(names):
            members = [self._asked.pop(name) for name in names]
            task = self._group.create_task(self._hand(members), name=f"hand over {', '.join(names)}")
            self._running |= dict.fromkeys(names, task)
            task.add_done_callback(lambda _: self._handed(members))

    def _handed(self, members: Sequence[Member]) -> None:
        for member in members:
            self._running.pop(member.name, None)
            member.break_off()

    async def _hand(self, members: Sequence[Member]) -> None:
        """Once it is their turn, and nothing is under way."""
        begun = False
        while not begun:
            for member in members:
                await member.settle()
            async with self._turn:
                if begun := all(member.idle for member in members):
                    await self._hand_now(members)

    async def _hand_now(self, members: Sequence[Member]) -> None:
        if await self._give(members):
            for member in members:
                if (frozen := await member.leave()) is not None:
                    self._frozen.append(frozen)

    async def _give(self, members: Sequence[Member]) -> bool:
        """All of them or none: no call is passed on before each of them is served."""
        for member in members:
            member.park()
        failure = ""
        try:
            async with asyncio.timeout(SERVING), asyncio.TaskGroup() as group:
                for member in members:
                    group.create_task(member.give(), name=f"give {member.name}")
            for member in members:
                member.pass_on()
        except* OSError as errors:  # also TimeoutError
            failure = str(errors.exceptions[0]) or f"it hasn't served within {SERVING:g} s"
        if failure:
            names = ", ".join(member.name for member in members)
            _log.warning("the gateway that takes %s over failed, so this one serves on: %s", names, failure)
            for member in members:
                await member.take_back()
        return not failure

    async def end(self, member: Member, grace: float) -> None:
        """The resource ends; a handover that has begun, in ``grace`` seconds."""
        member.ending = True
        self._asked.pop(member.name, None)
        if (task := self._running.get(member.name)) is not None:
            if member.parked:
                await asyncio.wait({task}, timeout=grace)
            task.cancel()
            await asyncio.wait({task})
        if member.given.done() and member.given.result():
            await asyncio.sleep(LINGER)
            with contextlib.suppress(TimeoutError):  # what was passed on is answered
                await within(grace, member.settle())
        await member.end()

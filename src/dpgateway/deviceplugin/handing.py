"""Hands resources over to a newer gateway, without a call that stays unanswered: the older gateway's side.

What the two say to each other is in ``server.taking``; why, in docs/design/handover.md. Resources of one pool are
handed over as one, because each of them must know what the others have given away:

1. All are parked in one moment: calls wait, and nothing is decided any more.
2. Each is given: the newer gateway gets its lock, and serves it. From now on calls are passed on.
3. One after the other registers, because many at once would wait for each other without a list at the kubelet. The
   older gateway's streams stay open, but send nothing more: a kubelet 1.37 would take it for the newer one's list.
4. Once the kubelet has the list of the last one, the older gateway lets all of them go in one moment.

Until step 4 a failure of any of them has all of them taken back, so a pool is never in two gateways. A gateway that
ends meanwhile takes nothing back: the newer one has all locks, and goes on alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Sequence

from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.resource import Resource
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.successor import Decided, Successor
from dpgateway.deviceplugin.server.taking import ASK, BACK, LISTED, POOR, REGISTER, SERVES, Retries
from dpgateway.kit.log import bind
from dpgateway.kit.seqpacket import Gone, Peer
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
        self._left = False
        """Whether the newer gateway registers."""
        self._frozen: Endpoint | None = None
        """Its own endpoint, if the end of its streams would end those of the newer gateway."""
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
        self._endpoint.check_given()

    def pass_on(self, decided: Decided) -> None:
        """From now on the newer gateway gets the calls. Raises OSError."""
        self._successor.serves(self._endpoint.given(), decided)

    async def take_back(self) -> None:
        """Serves on as if nothing had happened."""
        self._say_back()
        self._handlers.successor = None
        self._remembering.go_on()
        self._resource.releases.resting = self._resource.repeating.resting = False
        self._resource.releases.tell()
        await self._successor.end()

    async def leave(self) -> None:
        """Returns when the kubelet has the list of the newer gateway, or there is no kubelet to get one. Raises
        OSError, also TimeoutError.
        """
        await self._handlers.idle()
        streaming = self._registrar.streaming
        self._registrar.stop()
        self._handlers.hush()
        if streaming and keeps_one_client(self._resource.agent):
            self._frozen = self._endpoint
        self._left = True
        self._successor.owns()
        self._peer.send(REGISTER, *(self._frozen.connections() if self._frozen is not None else ()))
        if streaming:
            async with asyncio.timeout(LISTING):
                await self._hear(LISTED)

    def let_go(self) -> Endpoint | None:
        """The resource is the newer gateway's. Returns what must be kept until the process ends, if anything must."""
        self._log.info("handed over to another gateway")
        self._endpoint.let_go()
        if self._frozen is not None:
            self._frozen.freeze()
        self._decide(given=True)
        return self._frozen

    def break_off(self) -> Endpoint | None:
        """The handover is over, perhaps because this resource ends, or another one of its pool. Returns what must be
        kept until the process ends, if anything must.
        """
        if self.given.done():
            return None
        if self.ending:
            return self.let_go() if self._left else None  # the newer gateway goes on without this one
        if self.parked:
            self._say_back()
            self._decide(given=False)
        else:
            self._peer.close()  # it may ask again
        return None

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
        """``together``: the resources of the pool in which this one is that this gateway may serve, and itself.
        ``group``: for what it runs.
        """
        self._together, self._group = together, group
        self._asked: dict[str, Member] = {}
        """Those for which a newer gateway has asked, and the rest of whose pool it hasn't asked for yet."""
        self._turn = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._frozen: list[Endpoint] = []
        self._retries: dict[str, Retries] = {}
        """By resource, in either role; newer gateways of the first releases ask again at once."""

    def retries(self, resource: str) -> Retries:
        """Of handovers of the resource, to this gateway or from it. They outlive its plugin."""
        return self._retries.setdefault(resource, Retries())

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
        if not self.retries(member.name).due:
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
            self._keep(member.break_off())

    def _keep(self, frozen: Endpoint | None) -> None:
        if frozen is not None:
            self._frozen.append(frozen)

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
        """All of them or none."""
        if failure := await self._give(members):
            self._complain(members, "so this one serves on", failure)
            for member in members:
                await member.take_back()
            return

        # Each registers; what has registered waits for the rest of its pool, and any failure has all taken back.
        try:
            for member in members:
                await member.leave()
        except OSError as error:  # also TimeoutError
            self._complain(members, "so this one registers again", str(error) or _late("registered", LISTING))
            return  # and breaks off

        # Nothing is awaited here, so no resource of a pool is another gateway's before all are.
        for member in members:
            self.retries(member.name).succeeded()
            self._keep(member.let_go())

    async def _give(self, members: Sequence[Member]) -> str:
        """Why that failed; empty if each of them is served. No call is passed on before that."""
        for member in members:
            member.park()
        seconds = SERVING + SERVING_EACH * (len(members) - 1)
        decided = Decided()
        failure = ""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for member in members:
                    group.create_task(member.give(), name=f"give {member.name}")
            for member in members:
                member.pass_on(decided)
        except* OSError as errors:  # also TimeoutError
            failure = str(errors.exceptions[0]) or _late("served", seconds)
        return failure

    def _complain(self, members: Sequence[Member], consequence: str, failure: str) -> None:
        """Once for each cause, because a newer gateway may try again for hours."""
        news = False
        for member in members:
            news |= self.retries(member.name).failed(failure)
        level = logging.WARNING if news else logging.DEBUG
        names = ", ".join(member.name for member in members)
        _log.log(level, "the gateway that takes %s over failed, %s: %s", names, consequence, failure)

    async def end(self, member: Member, grace: float) -> None:
        """The resource ends; a handover that has begun, in ``grace`` seconds."""
        member.ending = True
        self._asked.pop(member.name, None)
        task = self._running.get(member.name)
        if task is not None and not member.given.done():  # else it ends nothing of the others
            if member.parked:
                await asyncio.wait({task}, timeout=grace)
            task.cancel()
            await asyncio.wait({task})
        if member.given.done() and member.given.result():
            await asyncio.sleep(LINGER)
            with contextlib.suppress(TimeoutError):  # what was passed on is answered
                await wait_for(member.settle(), grace)
        await member.end()


def _late(done: str, seconds: float) -> str:
    return f"it hasn't {done} within {seconds:g} s"

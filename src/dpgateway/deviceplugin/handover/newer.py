"""The newer gateway's side of a handover: asks for a resource, serves it, registers it (``protocol``).

The order is that of :meth:`Plugin._serve`: the ownership calls :meth:`NewerSide.ask` until the older gateway lends the
lock, then the resource is served, then :meth:`NewerSide.register` registers it. All of it is repeated after any
failure, so each step first checks whether it is already done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from dpgateway.deviceplugin.handover.parked import ParkedConnections
from dpgateway.deviceplugin.handover.protocol import ASK, BACK, LISTED, POOR, REGISTER, SERVES, TAKE, HandoverBackoff
from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.errors import KubeletError
from dpgateway.kit.seqpacket import Gone, Peer
from dpgateway.resource.ownership import Ownership

ASKING = 1.0
"""Seconds between two requests for a resource."""

Warm = Callable[[], Awaitable[bool]]
"""Returns once the resource could be served at once: whether it has a healthy device."""


class Misunderstood(OSError):
    """The older gateway's answer violates the protocol."""


class TakenBack(KubeletError):
    """The older gateway serves on: this one was too slow, or can't serve, or a message was unexpected."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the gateway that serves it took it back: {why}")


class NewerSide:
    """The newer side for one resource, for the life of its plugin. Used from the event loop."""

    def __init__(
        self,
        ownership: Ownership,
        next_: Path,
        backoff: HandoverBackoff,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``next_``: the socket of the older gateway."""
        self._ownership, self._next, self._backoff, self._log = ownership, next_, backoff, log
        self.parked = ParkedConnections()
        self._older: Peer | None = None
        """The gateway that lent the lock; closed once its streams, or the gateway, have ended."""
        self.older_api = ""
        """The API in which the older gateway is registered, by name."""
        self._may_register = False

    @property
    def took_over(self) -> bool:
        """Whether another gateway lent the lock to this one."""
        return self._older is not None

    async def ask(self, warm: Warm) -> int:
        """Asks until the serving gateway lends the lock; returns its descriptor."""
        told = False
        while True:
            await self._backoff.pause()
            # Warm before asking, because the kubelet's calls wait from the handover's start until this gateway serves.
            healthy = await warm()
            try:
                return await self._ask_once(healthy=healthy)
            except Misunderstood as error:
                level = logging.WARNING if self._backoff.failed(str(error)) else logging.DEBUG
                self._log.log(level, "the gateway that serves it can't hand it over: %s", error)
            except OSError as error:  # no listener, or the older gateway has hung up
                level = logging.DEBUG if healthy or told else logging.WARNING
                why = "" if healthy else "; this one has no healthy device, and nothing is taken from one that has any"
                self._log.log(level, "the gateway that serves it doesn't hand it over: %s%s", error, why)
                told = not healthy
                await asyncio.sleep(ASKING)

    async def _ask_once(self, *, healthy: bool) -> int:
        """Raises Misunderstood, or OSError if the older gateway doesn't hand the resource over."""
        older = Peer.dial(self._next)
        try:
            older.send(ASK if healthy else POOR)
            verb, _, api = (await older.receive()).partition(" ")
        except BaseException:
            older.close()
            raise
        descriptors = older.take_descriptors()
        if verb == BACK:  # what it writes last hangs, or another resource of the pool can't be given
            older.close()
            raise Gone("it wasn't ready, and serves on")
        if verb != TAKE or len(descriptors) != 1:
            found = f"{verb!r:.100} and {len(descriptors)} descriptors"
            wrong = f"expected {TAKE!r} and a lock, found {found}; end that gateway"
        elif not self._ownership.is_it(descriptors[0]):
            wrong = f"expected {self._ownership.path}, locked, found another descriptor"
        else:
            self._hang_up()  # an earlier lender's lock was in a folder that has been replaced since
            self._older, self.older_api, self._may_register = older, api, False
            return descriptors[0]
        for descriptor in descriptors:
            os.close(descriptor)
        older.close()
        raise Misunderstood(f"{self._next}: {wrong}")

    async def register(self, registrar: Registrar) -> None:
        """Registers the resource, once the older gateway, if any, allows it. Returns when that one can't take it back
        any more, and this one may itself be asked to hand it over. Raises TakenBack.
        """
        if self._older is None:
            registrar.ready()
            self._backoff.succeeded()
            return

        # This gateway may register on the older one's word, or once that one has ended. Only in the first case the
        # kubelet still has its stream there.
        if not self._may_register:
            _say(self._older, SERVES)
            try:
                await self._hear(self._older, REGISTER)
                seamless = True
            except OSError:
                self._older.close()
                seamless = False
            else:
                self.parked.park(self._older.take_descriptors())
            self._may_register = True
            self._log.info("took over from another gateway")
            registrar.ready(self.older_api, seamless=seamless)

        # Says LISTED once the kubelet has the list, until the older gateway, or its streams, have ended.
        telling = asyncio.create_task(self._tell(self._older, registrar), name="tell the older gateway")
        try:
            with contextlib.suppress(OSError):
                await self._hear(self._older, "nothing more")
        finally:
            telling.cancel()
        self._older.close()
        self._ownership.inherit()
        self._backoff.succeeded()

    @staticmethod
    async def _tell(older: Peer, registrar: Registrar) -> None:
        await registrar.standing.wait_for(lambda standing: standing.listed)
        _say(older, LISTED)

    @staticmethod
    async def _hear(older: Peer, expected: str) -> None:
        """Awaits the ``expected`` message. Raises TakenBack; OSError if the older gateway has hung up or ended."""
        if (said := await older.receive()) != expected:
            older.close()
            why = "this one hasn't answered in time" if said == BACK else f"expected {expected}, found {said!r}"
            raise TakenBack(why)

    def _hang_up(self) -> None:
        if self._older is not None:
            self._older.close()

    def close(self) -> None:
        """Closes all connections. Called once this gateway's own streams have ended."""
        self.parked.close()
        self._hang_up()


def _say(older: Peer, text: str) -> None:
    with contextlib.suppress(OSError):  # it has hung up; its last message, which is read next, tells why
        older.send(text)

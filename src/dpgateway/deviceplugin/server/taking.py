"""What a gateway asks of the one that serves a resource before it, and hears from it (docs/design/handover.md).

    newer                older
    ASK            ->                       once it is warm; POOR if it has no healthy device
                   <-    TAKE api, lock     at a moment when nothing is under way
    SERVES         ->                       the older one passes calls on from now on
                   <-    REGISTER [streams] at the next such moment
    LISTED         ->                       the older one ends its streams, then the connection
                   <-    BACK               at any time: the newer one was too slow, and must let go

The lock's descriptor comes with TAKE. From then on both hold the lock, so whoever of them ends leaves it to the other.
A gateway without a healthy device gets nothing from one that has any: a release whose driver finds nothing would take
the kubelet's devices away. With REGISTER come the connections whose end would end the newer gateway's stream, so that
they outlive the older one. The newer one hands nothing on before the older one has ended the connection: until then the
older one may want the resource back, and a kubelet 1.37 that loses one of three streams may call either of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

from dpgateway.deviceplugin.server.mute import Mutes
from dpgateway.errors import KubeletError
from dpgateway.kit.seqpacket import Peer
from dpgateway.kit.tasks import LONGEST_PAUSE, backoff

ASK, POOR, TAKE, SERVES = "ask 1", "ask 1 without healthy devices", "take", "serves"
REGISTER, LISTED, BACK = "register", "listed", "back"


class Misunderstood(OSError):
    """The older gateway answers with something else than it should."""


class Retries:
    """What is to be done before a handover that failed is tried again, and whether the log has to hear of the failure.

    The pause is 1 s, doubling up to 60 s. Up to a quarter is added at random, so that the resources of one gateway
    don't return in step. Used from the event loop.
    """

    def __init__(self) -> None:
        self._failures, self._due, self._why = 0, 0.0, ""

    def failed(self, why: str) -> bool:
        """Whether that is news: the last failure had another cause."""
        self._failures += 1
        pause = backoff(self._failures, LONGEST_PAUSE) * (1 + random.random() / 4)  # noqa: S311  no secret
        self._due = asyncio.get_running_loop().time() + pause
        self._why, before = why, self._why
        return why != before

    def succeeded(self) -> None:
        self._failures, self._due, self._why = 0, 0.0, ""

    @property
    def due(self) -> bool:
        """Whether the pause is over."""
        return asyncio.get_running_loop().time() >= self._due

    async def pause(self) -> None:
        """Returns when it is over."""
        await asyncio.sleep(self._due - asyncio.get_running_loop().time())


class TakenBack(KubeletError):
    """The older gateway serves on, because this one was too slow, or because neither knows what the other one says."""

    def __init__(self, said: str, expected: str) -> None:
        why = "this one hasn't answered in time" if said == BACK else f"expected {expected}, found {said!r}"
        super().__init__(f"the gateway that serves it took it back: {why}")


class Taking:
    """The newer gateway's side. Used from the event loop."""

    def __init__(self, older: Peer, api: str) -> None:
        self._older = older
        self.api = api
        """The name of the API in which the older gateway is registered."""

    @classmethod
    async def ask(cls, path: Path, *, healthy: bool) -> tuple[Taking, int]:
        """With the descriptor of the lock. Raises OSError if the older gateway doesn't hand the resource over, and
        Misunderstood if it answers something else.

        ``healthy``: whether this gateway has a healthy device of it.
        """
        older = Peer.dial(path)
        try:
            older.send(ASK if healthy else POOR)
            verb, _, api = (await older.hear()).partition(" ")
            descriptors = older.passed()
        except BaseException:
            older.close()
            raise
        if verb != TAKE or len(descriptors) != 1:
            for descriptor in descriptors:
                os.close(descriptor)
            older.close()
            found = f"{verb!r:.100} and {len(descriptors)} descriptors"
            raise Misunderstood(f"{path}: expected {TAKE!r} and a lock, found {found}; end that gateway")
        return cls(older, api), descriptors[0]

    async def registers(self, mutes: Mutes) -> bool:
        """Returns when this gateway may register: the older one says so, or has ended (False). Raises TakenBack."""
        self._say(SERVES)
        try:
            await self._heard(REGISTER)
        except OSError:
            self._older.close()
            return False
        for descriptor in self._older.passed():
            mutes.hold(descriptor)
        return True

    def listed(self) -> None:
        """The kubelet has the list of this gateway."""
        self._say(LISTED)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # it has closed the connection; what it said before tells why
            self._older.send(text)

    async def ended(self) -> None:
        """Returns when the older gateway has ended its streams, or itself. Raises TakenBack."""
        with contextlib.suppress(OSError):
            await self._heard("nothing more")
        self._older.close()

    async def _heard(self, expected: str) -> None:
        """Raises TakenBack, or OSError if the older gateway has closed the connection, or ended."""
        if (said := await self._older.hear()) != expected:
            self._older.close()
            raise TakenBack(said, expected)

    def close(self) -> None:
        self._older.close()

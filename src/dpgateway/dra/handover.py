"""One gateway hands the DRA driver over to the next, while both run.

Theory of operation. The driver's lock decides: its owner has the claims' records, and writes the slices. The newer
gateway dials the older one's socket, beside the lock. Each message is a packet of text; never change one, because an
upgrade is a handover between two releases.

    newer               older
    ask 1          ->                    each of its drivers has listed, so it can serve at once
                   <-   take, lock       the kubelet's calls wait, no claim is under way, the resources' locks are free;
                                         with the descriptor of the driver's lock
    serves NAME    ->                    the name of its socket, where the older one passes calls on
    registered     ->                    the kubelet has accepted it
                   <-   (end)            the older one has left the kubelet

- The kubelet keeps two instances of a driver, and calls the one that connected last. So the newer one registers before
  the older one leaves, and no pod finds the driver missing: that costs a pod 45 to 85 s.
- Slices have the same names in both gateways: the newer one adopts them, and writes nothing.
- If the newer one ends early, its lock is free: the older one takes it, reads the records, and answers the calls that
  wait. If the older one ends early, the newer one has the lock, and waits for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from dpgateway.kit.seqpacket import Gone, Listener, Peer
from dpgateway.resource.ownership import Ownership

ASK, TAKE, SERVES, REGISTERED = "ask 1", "take", "serves", "registered"
ASKING = 1.0
"""Seconds between two requests, and for a dialling gateway's first message."""
SERVING = 10.0
"""Seconds after which a newer gateway that doesn't serve yet is news. Calls of the kubelet wait meanwhile."""


class DriverHandover:
    """Both sides, for one driver. Used from the event loop."""

    def __init__(
        self, ownership: Ownership, warm: Callable[[], Awaitable[None]], log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        """``warm`` returns once this gateway could serve at once."""
        self._ownership, self._path = ownership, ownership.next
        self._warm, self._log = warm, log
        self.asked = asyncio.Event()
        """Set once a newer gateway has asked."""
        self.busy = False
        """Whether newer gateways have to ask again, because what is under way here takes long."""
        self._older: Peer | None = None
        self._served = False
        """Whether the older gateway knows that this one serves."""
        self._newer: Peer | None = None
        self._listener: Listener | None = None
        self._meetings: set[asyncio.Task[None]] = set()

    # the newer gateway

    async def ask(self) -> int:
        """Asks until the serving gateway lends the lock; returns its descriptor."""
        while True:
            await self._warm()
            try:
                self._older = Peer.dial(self._path)
                self._older.send(ASK)
                said, descriptors = await self._older.receive(), self._older.take_descriptors()
                if said == TAKE and len(descriptors) == 1 and self._ownership.is_it(descriptors[0]):
                    self._served = False
                    return descriptors[0]
                for descriptor in descriptors:
                    os.close(descriptor)
                found = f"{said!r:.100} and {len(descriptors)} descriptors"
                self._log.warning("the gateway that serves it: expected %r and its lock, found %s", TAKE, found)
            except OSError as error:  # no listener, or it isn't idle
                self._log.debug("the gateway that serves it doesn't hand it over: %s", error)
            self._hang_up()
            await asyncio.sleep(ASKING)

    def serves(self, socket: Path) -> None:
        """This gateway answers calls at ``socket``: said once, because the older one expects a registration then."""
        if not self._served:
            self._say(f"{SERVES} {socket.name}")
            self._served = True

    async def registered(self) -> None:
        """The kubelet has accepted this gateway. Returns once the older one, if any, has left the kubelet."""
        if self._older is not None:
            self._say(REGISTERED)
            with contextlib.suppress(OSError):
                await self._older.receive()
            self._hang_up()

    def _say(self, text: str) -> None:
        if self._older is not None:
            with contextlib.suppress(OSError):  # it has ended
                self._older.send(text)

    def _hang_up(self) -> None:
        if self._older is not None:
            self._older.close()
            self._older = None

    # the older gateway

    @property
    def listens(self) -> bool:
        """Whether newer gateways can ask."""
        return self._listener is not None

    def listen(self) -> None:
        """Listens for newer gateways. Raises OSError."""
        self.asked.clear()
        before, self._listener = self._listener, Listener(self._path, self._dialled)
        if before is not None:
            before.close()

    def _dialled(self, newer: Peer) -> None:
        task = asyncio.create_task(self._meet(newer), name="meet a newer gateway")
        self._meetings.add(task)
        task.add_done_callback(self._meetings.discard)

    async def _meet(self, newer: Peer) -> None:
        try:
            async with asyncio.timeout(ASKING):
                said = await newer.receive()
        except (OSError, TimeoutError):
            said = ""
        if said != ASK or self.asked.is_set() or self.busy:
            newer.close()
            return
        self._newer = newer
        self.asked.set()

    def refuse(self) -> None:
        """Not now: the newer gateway asks again, for nothing as long as this one is `busy`."""
        self.busy = True
        self._let_go()
        self.asked.clear()

    def give(self) -> None:
        """Passes the driver's lock on; the resources' locks are free."""
        if self._newer is not None:
            with contextlib.suppress(OSError):  # it has ended: the lock is free
                self._newer.send(TAKE, self._ownership.lend())
        self._ownership.release()

    async def pass_on(self, serves: Callable[[Path], None], folder: Path) -> None:
        """Returns once the newer gateway has registered. ``serves`` is called with its socket, in ``folder``. Raises
        OSError if it has ended.
        """
        if (newer := self._newer) is None:
            raise Gone("no gateway has asked")
        # However long that takes: it has the lock, so nobody else can serve before it ends.
        text = "the gateway that takes the driver over hasn't served for %.0f s: the kubelet's calls wait"
        late = asyncio.get_running_loop().call_later(SERVING, self._log.warning, text, SERVING)
        try:
            verb, _, name = (await newer.receive()).partition(" ")
        finally:
            late.cancel()
        if verb != SERVES or not name or Path(name).name != name:
            raise Gone(f"the other gateway: expected {SERVES!r} and a name, found {verb!r:.100}")
        serves(folder / name)
        # However long that takes: the kubelet may be away, and calls are answered meanwhile.
        if (said := await newer.receive()) != REGISTERED:
            raise Gone(f"the other gateway: expected {REGISTERED!r}, found {said!r:.100}")

    def _let_go(self) -> None:
        if self._newer is not None:
            self._newer.close()
            self._newer = None

    def close(self) -> None:
        """Hangs up on both sides. To the newer gateway that says that this one has left the kubelet."""
        self._let_go()
        self._hang_up()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

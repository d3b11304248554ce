"""This gateway's instance of the DRA driver at the kubelet: lock, service and registration, one after the other.

A round begins when this gateway gets the driver's lock, and ends when a newer gateway has asked for it::

    own      the driver's lock: by waiting, or by asking the gateway that has it
    serve    the service, then the registration
    rest     the kubelet's calls wait, and the last ones have ended
    give     the lock is free; calls are passed on until the newer gateway has registered, then this one leaves

A gateway whose successor ends early gets the lock again, and begins another round.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from dpgateway.dra.handover import DriverHandover
from dpgateway.dra.health import HealthStreams
from dpgateway.dra.preparing import NodeClaims
from dpgateway.dra.service import HERE, NOBODY, VERSIONS, Service, folder_of
from dpgateway.errors import KubeletError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.files import make_private
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import aligned
from dpgateway.registry.socket import RegisteredPlugin, RegistrationAnswer, RegistrationSocket
from dpgateway.resource.ownership import Ownership

TYPE = "DRAPlugin"
"""The type of the plugin in its registration (pkg/kubelet/pluginmanager)."""
RESTING = 5.0
"""Seconds that calls under way have to end; then the newer gateway has to ask again."""
LEAVING = 0.3
"""Seconds that calls which the kubelet waits for no more have at the end of the process, which takes 2 s (daemon)."""
LOOK = 5.0
"""Seconds between two looks whether the sockets are still there."""
QUIET, LONGEST_CALL = 1.0, 45.0
"""Seconds without a call until this instance leaves the kubelet, which may have chosen it before it knew the newer one,
and ends its calls when it leaves; and the longest that the kubelet waits for one (pkg/kubelet/cm/dra/plugin)."""


_log = bind(__name__)


class DriverInstance:
    """Used from the event loop."""

    def __init__(
        self,
        root: Path,
        driver: str,
        claims: NodeClaims,
        health: HealthStreams,
        warm: Callable[[], Awaitable[None]],
    ) -> None:
        """``root``: the kubelet's root directory; ``warm`` returns once this gateway could serve at once."""
        self._root, self._driver, self._claims, self._health = root, driver, claims, health
        self.folder = folder_of(root, driver)
        self.ownership = Ownership(self.folder, driver, _log)
        """Of the driver: one gateway of a node has its claims, and writes its slices."""
        self.ownership.writing = lambda: claims.store.disk.changing
        self.needed: Callable[[], bool] = lambda: True
        """Whether anything is offered by DRA, or held."""
        self.answer: Observable[RegistrationAnswer | None] = Observable(None)
        """The kubelet's answer to the registration; None until it has said something."""
        self.failure: Observable[str] = Observable("")
        """Why it can't be served; empty if it is, or nothing has failed yet."""
        self._failing = Complaint(_log, "DRA can't be served: %s", level=logging.ERROR)
        self._handover = DriverHandover(self.ownership, warm, _log)
        self.follows = True
        """Whether it asks the gateway that serves; once it has given, it only waits for that one's end."""
        self._ends = False
        """Whether the process is about to end."""
        self._service: Service | None = None
        self._registration: RegistrationSocket | None = None
        self._passing: asyncio.Task[None] | None = None
        """Passes calls on to the newer gateway, until that has registered."""
        self._unheard: float | None = None
        """Since when the kubelet seems to be gone, on the loop's clock, unless the driver was registered anew since."""

    async def own(self) -> None:
        """Returns with the driver's lock. Raises KubeletError, OSError."""
        make_private(self.folder)
        await self.ownership.acquire(self._handover.ask if self.follows else None)
        if self._passing is not None:  # the newer one has ended
            self._passing.cancel()
            self._passing = None

    async def serve(self) -> None:
        """Serves, and registers. Raises KubeletError, OSError."""
        # What the kubelet can't find any more ends, and with the service its registration: that names the service.
        service, before = self._service, self._handover.asked.is_set()
        if not all(path.exists() for path in self._sockets):
            await self._leave()
        if service is not None and not service.socket.exists():
            self._service = None
            await service.close(0)
        if self._service is None:
            made = Service(self._root, self._driver, self._claims, self._health, _log)
            await made.open()
            self._service = made
        # A newer gateway may have asked meanwhile: what is held back for it stays so.
        asked = self._handover.asked.is_set() and not before
        self._claims.waits.ask(asked=asked)
        self._service.answering.set(NOBODY if asked else HERE)
        self._handover.serves(self._service.socket)
        if self._registration is None:
            what = RegisteredPlugin(TYPE, self._driver, self._service.socket, VERSIONS)
            registration = RegistrationSocket(self._root, what, _log)
            registration.needed = self.needed
            registration.answer.subscribe(lambda: self.answer.set(registration.answer.value))
            await registration.open()
            self._registration, self._unheard = registration, None
            if self._ends:  # since the registration was begun
                registration.leave()
        self._failing.over()
        self.failure.set("")

    def failed(self, error: Exception) -> None:
        """It can't be served, for now; each retry that fails says so."""
        why = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            why = f"{error.filename}: {error.strerror}"
        self._failing.say(why)
        self.failure.set(why)

    def kubelet_gone(self) -> None:
        """The kubelet's socket of the device plugins is gone: nothing is published before the next kubelet has
        registered the driver.
        """
        self.answer.set(None)
        self._unheard = asyncio.get_running_loop().time()

    async def keep(self) -> None:
        """Serves and registers again if somebody removes the sockets, as a reset of the node does, or the kubelet's
        alone: a kubelet that runs on says nothing to a registration that it knows. Never returns.
        """
        while True:
            await asyncio.sleep(aligned(LOOK))
            if self._ends or self._handover.asked.is_set():
                continue
            # Whether no kubelet has said anything since the last one seemed to be gone, LOOK ago.
            unheard = None if self.answer.value is not None else self._unheard
            silent = unheard is not None and asyncio.get_running_loop().time() - unheard >= LOOK
            if not all(path.exists() for path in self._sockets):
                _log.warning("a socket of %s was removed, so it is registered again", self._driver)
                await self._again()
            elif silent or self._registration is None:
                await self._leave()  # first: a kubelet refuses a second registration of one service
                await self._again()

    async def _again(self) -> None:
        try:
            await self.own()  # its lock may be gone, too
            if self._handover.asked.is_set():
                return  # what is held back for a newer gateway stays so
            await self.serve()
            if self._handover.listens and not self._handover.asked.is_set():
                self._handover.listen()
        except (KubeletError, OSError) as error:
            self.failed(error)

    @property
    def _sockets(self) -> tuple[Path, ...]:
        """Those that the kubelet has to find."""
        service = () if self._service is None else (self._service.socket,)
        return service if self._registration is None else (*service, self._registration.path)

    async def until_given(self) -> None:
        """Returns once a newer gateway has asked, and nothing is under way here: from then on calls wait."""
        await self.answer.wait_for(lambda answer: answer is not None and answer.accepted)
        await self._handover.registered()
        self._health.repeat()  # the older instance's end made the kubelet forget what it knew
        self._handover.listen()
        while True:
            self._handover.busy = False
            await self._handover.asked.wait()
            # New calls are held back until the others have ended.
            self._answer_from(NOBODY)
            self._claims.waits.ask(asked=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESTING):
                    await self._claims.idle()
                return
            self._claims.waits.ask(asked=False)
            self._answer_from(HERE)
            _log.warning("a newer gateway has asked for %s, but a claim is under way for long", self._driver)
            self._handover.refuse()
            await self._claims.turned_over()  # calls go on meanwhile: a driver, or the disk, may hang for hours

    def give(self) -> None:
        """Frees the lock. All resources have freed theirs."""
        self._handover.give()
        self.follows = False
        self._passing = asyncio.create_task(self._pass_on(), name="pass calls on to the newer gateway")

    async def _pass_on(self) -> None:
        try:
            await self._handover.pass_on(self._answer_from, self.folder)
        except OSError as error:
            text = "the gateway that takes %s over failed, so this one serves on once that has ended: %s"
            _log.warning(text, self._driver, error)
            self._answer_from(NOBODY)
            self._handover.close()
            return
        if (service := self._service) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_CALL):
                    await service.quiet(QUIET)
        _log.info("handed %s over to another gateway", self._driver)
        await self._leave()
        self._handover.close()
        self._service = self._passing = None
        if service is not None:
            await service.close(QUIET)

    def _answer_from(self, where: Path) -> None:
        if self._service is not None:
            self._service.answering.set(where)

    async def _leave(self) -> None:
        registration, self._registration = self._registration, None
        self.answer.set(None)
        if registration is not None:
            await registration.close()

    @property
    def passing(self) -> bool:
        """Whether the newer gateway hasn't registered yet."""
        return self._passing is not None

    @property
    def asks(self) -> bool:
        """Whether the kubelet can see its registration."""
        return self._registration is not None

    # the end of the process

    def ending(self) -> None:
        """The kubelet turns to a successor."""
        self._ends = True
        if self._registration is not None:
            self._registration.leave()

    async def drain(self, grace: float) -> None:
        """Waits up to ``grace`` seconds for calls under way."""
        if self._service is not None:
            await self._service.close(grace)

    async def close(self) -> None:
        if self._passing is not None:
            self._passing.cancel()
        await self._leave()
        if self._service is not None:
            await self._service.close(0)
        await self._claims.leave(LEAVING)
        self.ownership.end()  # last: from now on the records are another gateway's
        self._handover.close()

    def abandon(self) -> None:
        """Leaves the kubelet and lets go of the ownership at once. May be called from any thread."""
        self.ending()
        self.ownership.abandon()

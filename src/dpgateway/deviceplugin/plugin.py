"""One resource as a device plugin: served on a socket, registered with the kubelet, handed over between gateways.

``resource.resource`` is the resource itself, with its driver, list and journal. A plugin serves its socket first,
registers it once it has a list, and from then on a newer gateway may take it over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.handover.coordinator import Coordinator
from dpgateway.deviceplugin.handover.newer import NewerSide, TakenBack
from dpgateway.deviceplugin.handover.older import OlderSide
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.holdings.observed import follow
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.registration.rival import Rival
from dpgateway.deviceplugin.server.callers import Callers
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.handlers import Handlers
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import retry
from dpgateway.node.incarnation import Change
from dpgateway.resource.ownership import LockState
from dpgateway.resource.resource import Common, Resource

_log = bind(__name__)


@dataclass(frozen=True)
class Front:
    """The objects that all resources of this front share."""

    common: Common
    holdings: NodeHoldings
    client: KubeletClient
    handover: Coordinator
    cdi: CdiDelivery
    throttle: ListThrottle


class Plugin:
    """Used from the event loop. :meth:`run` serves until it is cancelled; :meth:`drain` and :meth:`close` follow."""

    def __init__(
        self,
        config: Observable[ResourceConfig],
        driver: RunningDriver,
        front: Front,
        group: asyncio.TaskGroup,
        *,
        follows: bool = True,
    ) -> None:
        """``config`` changes in place (config/changes.py): driver, sockets and streams stay, and held ids stay listed.
        ``follows``: whether to take over from a gateway that already serves, instead of waiting for its end.
        """
        self.name = name = config.value.name
        self._log = log = bind(_log, resource=name, driver=config.value.driver)
        self._front, self._group, self._follows = front, group, follows
        self._holdings = holdings = front.holdings.by_resource[name]
        self.resource = resource = Resource(config, driver, holdings, front.common, log)
        left = front.common.pools.left
        self._calls = KubeletCalls(
            resource.granting, holdings, front.cdi, front.client.apis[0], claimed=lambda: name in left.value
        )
        self._handlers = Handlers(
            self._calls,
            front.client.apis,
            lambda agent: self._callers.opened(partial(self.registrar.stream_opened, agent)),
            front.throttle,
            log,
        )
        self.rpcs = self._handlers.rpcs
        """Statistics of the answered calls."""
        self._endpoint = Endpoint(resource.ownership, self._handlers, group, log)
        self._callers = Callers(self._endpoint.paths, front.client.is_kubelet)
        self.registrar = Registrar(self._calls, self._endpoint, front.client, group, log)
        self.standing = self.registrar.standing
        self._rival = Rival(name, log)

        self.refused, self.outdated = self._handlers.refused, self._calls.answers.outdated
        self.rival = self._rival.complaint
        """The warning that another plugin has registered this resource; empty if none has."""

        self._backoff = front.handover.backoff(name)
        self._as_newer = NewerSide(resource.ownership, self._endpoint.next, self._backoff, log)
        parked = self._as_newer.parked
        self._as_older = OlderSide(self._calls, self._endpoint, self.registrar, resource.journal, parked, log)
        self.taken_back = False
        """Whether the gateway that handed the resource over has taken it back."""

        resource.changed.subscribe(self._calls.answers.look)
        resource.restarted.subscribe(self.registrar.options_changed)  # another driver may have other abilities
        self._config, self._known = config, config.value
        config.subscribe(self._configured)

    def _configured(self) -> None:
        """The options depend on these keys; other keys are read when used, or are the resource's."""
        before, self._known = self._known, self._config.value
        if before.shares != self._known.shares or before.preference != self._known.preference:
            self.registrar.options_changed()

    @property
    def attempts(self) -> Mapping[tuple[str, str], int]:
        """Numbers of Registers, by API and outcome."""
        return self.registrar.record.attempts

    @property
    def streaming(self) -> bool:
        """Whether a stream of the present kubelet is open."""
        return self.registrar.streaming

    def kubelet(self, change: Change) -> None:
        """The kubelet's socket has changed."""
        if change is Change.NEW:
            self._calls.new_kubelet()
        self.registrar.kubelet(change)

    @property
    def values(self) -> tuple[Signal, ...]:
        """Everything observable about it, for subscribers to all changes."""
        resource = self.resource
        return (
            resource.inventory.list,
            resource.inventory.exclusion,
            self._holdings,
            self.registrar.standing,
            resource.inventory.rejected,
            resource.driver.state,
            self.refused,
            resource.trouble,
            self.rival,
            self.outdated,
            resource.elsewhere,
        )

    # life cycle

    async def run(self) -> bool:
        """Serves once the directory exists, registers once there is a list, then runs until cancelled.

        Returns early: True if another gateway has taken the resource over, False if this one must start over.
        """
        resource, answers, registered = self.resource, self._calls.answers, self._front.holdings.reader.registered
        for name, following in (
            ("itself", resource.run),
            ("holdings", partial(follow, self._holdings, resource.inventory, resource.releases)),
            ("answers", answers.follow),
            ("notes of answers", answers.follow_notes),
            ("claims", self._follow_claims),
            ("rival", partial(self._rival.follow, registered, resource.inventory, self.registrar.record)),
        ):
            self._group.create_task(following(), name=f"{self.name} {name}")
        try:
            await retry(self._serve, self._failed)
            # shield: a cancellation here mustn't cancel the coordinator's future.
            given = await asyncio.shield(self._as_older.over)
        except TakenBack as error:
            level = logging.WARNING if self._backoff.failed(str(error)) else logging.DEBUG
            self._log.log(level, "%s", error)
            resource.granting.end("another gateway serves it")
            resource.journal.leave()  # while this one drains, that gateway grants
            resource.releases.rest()
            resource.ownership.release()
            self.taken_back, given = True, False
        resource.went("another gateway has taken it over" if given else "a handover failed")
        return given

    async def _follow_claims(self) -> None:
        """The options depend on claims of an earlier front, which may be known only after the registration."""
        left, seen = self._front.common.pools.left, 0
        while True:
            seen = await left.wait(seen)
            self.registrar.options_changed()

    async def _serve(self) -> None:
        # Each step may be repeated, because any failure starts over from the first one.
        await self._front.holdings.node.there.wait()
        try:
            await self._endpoint.open(self._ask if self._follows else None)
        except (KubeletError, OSError) as error:
            if self.resource.ownership.state is LockState.BORROWED:  # as with a full disk: the lender serves on
                raise TakenBack(str(error)) from error
            raise
        await self.resource.begin(took_over=self._as_newer.took_over)
        self._calls.answers.look()
        # No await up to the message that says so: a gateway that has taken the resource back meanwhile writes, too.
        self.resource.journal.go_on()
        await self._as_newer.register(self.registrar)
        # A gateway that takes the resource back releases, and gives away, what is free here: a call of this one's
        # driver that has begun by then can't be stopped.
        self.resource.releases.go_on()
        self._calls.answers.look()
        # Last: a third gateway may ask only once a handover to this one is over (protocol, step 6).
        self._as_older.listen(partial(self._front.handover.asked, self._as_older))

    async def _ask(self) -> int:
        """Asks the gateway that serves it; returns the descriptor of the lock that it lends."""
        descriptor = await self._as_newer.ask(self.resource.warm)
        # That one forwards calls before this one has registered: 1.8 and 1.9 share a path.
        for api in self._front.client.apis:
            if api.name == self._as_newer.older_api:
                self._calls.speak(api)
        return descriptor

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, KubeletError | OSError) or isinstance(error, TakenBack):
            raise error
        self.resource.cannot(error)

    async def drain(self, grace: float) -> None:
        """Ends the registration, refuses new calls, and waits up to ``grace`` seconds for Allocates in flight."""
        began = time.monotonic()
        await self._front.handover.end(self._as_older, grace)
        grace -= time.monotonic() - began
        self.registrar.stop()
        self.resource.stop()
        await self._endpoint.drain(grace)

    async def close(self) -> None:
        """Ends the streams and the server, removes the names, and releases the ownership."""
        await self.resource.close()
        try:
            await self._endpoint.close()
            await self.resource.close()  # a call that outlasted its grace may have ended only now
        finally:
            self.resource.ownership.end()
        self._as_older.close()
        self._as_newer.close()

    def abandon(self) -> None:
        """Removes the names at once, without waiting for tasks. May be called from any thread."""
        self._endpoint.abandon()
        self.resource.ownership.abandon()

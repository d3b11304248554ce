"""One resource as a device plugin: served on a socket, registered with the kubelet, handed over between gateways.

The resource itself, with its driver, its list and its journal, is in ``resource.resource``. Here it meets the kubelet:
its socket is served before anything is registered, and it is registered once it has a list. A newer gateway may take it
over at any time after that.
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
from dpgateway.deviceplugin.handover.older import OlderSide, ServedResource
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.holdings.observed import follow
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.registration.rival import Rival
from dpgateway.deviceplugin.server.callers import Callers
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.handlers import Handlers, StreamCallbacks
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import retry
from dpgateway.resource.resource import Common, Resource

_log = bind(__name__)


@dataclass(frozen=True)
class Front:
    """What all resources of this front share."""

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
        """``config`` changes in place (config/changes.py): the driver, the sockets and the streams stay, and what
        containers hold stays listed. ``follows``: whether it takes over from a gateway that serves already, and doesn't
        only wait for its end.
        """
        self.name = name = config.value.name
        self._log = log = bind(_log, resource=name, driver=config.value.driver)
        self._front, self._group, self._follows = front, group, follows
        self._holdings = holdings = front.holdings.by_resource[name]
        self.resource = resource = Resource(config, driver, holdings, front.common, log)
        self._calls = KubeletCalls(resource.granting, holdings, front.cdi, front.client.apis[0])
        self._handlers = Handlers(self._calls, front.client.apis, self._stream_opened, front.throttle, log)
        self._endpoint = Endpoint(resource.ownership, self._handlers, group, log)
        self._callers = Callers(self._endpoint.paths, front.client.is_kubelet)
        self.registrar = Registrar(self._calls, self._endpoint, front.client, group, log)
        self._rival = Rival(name, log)

        self._backoff = front.handover.backoff(name)
        self._newer = NewerSide(resource.ownership, self._endpoint.next, self._backoff, log)
        parked = self._newer.parked
        served = ServedResource(self._calls, self._endpoint, self.registrar, resource.journal, parked, log)
        self._older = OlderSide(served)
        self.taken_back = False
        """Whether the gateway that handed it over serves it again."""

        resource.watch.changed.subscribe(self._calls.answers.look)
        resource.watch.restarted.subscribe(self.registrar.options_changed)  # another driver may have other abilities
        self._config, self._known = config, config.value
        config.subscribe(self._configured)

    def _configured(self) -> None:
        """What else changed is read when it is used, or is the resource's."""
        before, self._known = self._known, self._config.value
        if before.shares != self._known.shares or before.preference != self._known.preference:
            self.registrar.options_changed()

    def _stream_opened(self, agent: str) -> StreamCallbacks | None:
        return self._callers.opened(partial(self.registrar.stream_opened, agent))

    @property
    def rival(self) -> str:
        """What is wrong with the kubelet's list of this resource: it is another plugin's. Empty if it is ours."""
        return self._rival.complaint.value

    @property
    def outdated(self) -> Mapping[str, str]:
        """Why the container of an id can't be started again, by offered id."""
        return self._calls.answers.outdated.value

    @property
    def refused(self) -> tuple[str, float] | None:
        """Why the last container got nothing, and since when each got nothing; None if one has got something since."""
        return self._handlers.refused.value

    @property
    def rpcs(self) -> CallStats:
        """What was asked of it."""
        return self._handlers.rpcs

    @property
    def values(self) -> tuple[Signal, ...]:
        """All that changes while it runs, for those who follow everything."""
        resource = self.resource
        return (
            resource.inventory.list,
            self._holdings,
            self.registrar.standing,
            resource.inventory.misfit,
            resource.driver.state,
            self._handlers.refused,
            resource.trouble,
            self._rival.complaint,
            self._calls.answers.outdated,
            resource.ownership.other,
        )

    # its life

    async def run(self) -> bool:
        """Serves once there is a directory, registers once there is a list, then follows events until cancelled.

        Returns early if another gateway has taken the resource over: True, or if this one must begin again: False.
        """
        resource, answers, registered = self.resource, self._calls.answers, self._front.holdings.reader.registered
        for name, following in (
            ("itself", resource.run),
            ("holdings", partial(follow, self._holdings, resource.inventory, resource.releases)),
            ("answers", answers.follow),
            ("notes of answers", answers.follow_notes),
            ("rival", partial(self._rival.follow, registered, resource.inventory, self.registrar.record)),
        ):
            self._group.create_task(following(), name=f"{self.name} {name}")
        try:
            await retry(self._serve, self._failed)
            given = await asyncio.shield(self._older.over)
        except TakenBack as error:
            level = logging.WARNING if self._backoff.failed(str(error)) else logging.DEBUG
            self._log.log(level, "%s", error)
            resource.ownership.release()
            self.taken_back, given = True, False
        resource.went("another gateway has taken it over" if given else "a handover failed")
        return given

    async def _serve(self) -> None:
        await self._front.holdings.node.there.wait()
        await self._endpoint.open(partial(self._newer.ask, self.resource.warm) if self._follows else None)
        await self.resource.begin(took_over=self._newer.took_over)
        self._calls.answers.go_on()
        self._calls.answers.look()
        await self._newer.register(self.registrar)
        self._older.listen(partial(self._front.handover.asked, self._older))

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, KubeletError | OSError) or isinstance(error, TakenBack):
            raise error
        self.resource.cannot(error)

    async def drain(self, grace: float) -> None:
        """Registers no more, refuses new calls, and waits up to ``grace`` seconds for Allocates in flight."""
        began = time.monotonic()
        await self._front.handover.end(self._older, grace)
        grace -= time.monotonic() - began
        self.registrar.stop()
        self.resource.stop()
        await self._endpoint.drain(grace)

    async def close(self) -> None:
        """Ends the streams and the server, removes the names, and gives the resource up."""
        await self.resource.close()
        try:
            await self._endpoint.close()
        finally:
            self.resource.ownership.end()
        self._older.close()
        self._newer.close()

    def abandon(self) -> None:
        """Removes the names at once, whatever still runs; from any thread."""
        self._endpoint.abandon()
        self.resource.ownership.end()

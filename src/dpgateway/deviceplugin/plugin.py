"""One resource as a device plugin, from its driver to the kubelet: makes and connects the parts, runs and ends them.

It watches the running driver and passes on what the driver says. All else is done by the parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import LIST_LIMIT
from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.handover.coordinator import Coordinator
from dpgateway.deviceplugin.handover.newer import NewerSide, TakenBack
from dpgateway.deviceplugin.handover.older import OlderSide, ServedResource
from dpgateway.deviceplugin.holdings.following import follow
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.registration.registrar import Registrar
from dpgateway.deviceplugin.registration.stranger import SETTLED, Stranger
from dpgateway.deviceplugin.server.callers import Callers
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.handlers import Handlers, StreamCallbacks
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.complaint import Reminder
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.tasks import retry
from dpgateway.kit.threads import Threads
from dpgateway.model import Device
from dpgateway.node.checkpoint import WRITING
from dpgateway.resource.freeing import Releases
from dpgateway.resource.granting import Granting
from dpgateway.resource.inventory import Inventory
from dpgateway.resource.journal import Journal
from dpgateway.resource.journal_writer import Remembering
from dpgateway.resource.list_log import News
from dpgateway.resource.ownership import Ownership
from dpgateway.resource.pools import Pools

_log = bind(__name__)


@dataclass(frozen=True)
class Front:
    """What all resources of this front share."""

    holdings: NodeHoldings
    client: KubeletClient
    threads: Threads
    state_dir: Path
    pools: Pools
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
        self._config, self._known = config, config.value
        self.driver = driver
        self.served = False
        self.taken_back = False
        """Whether the gateway that handed it over serves it again."""
        self._trouble = Observable("")
        """Why the resource can't be served."""
        self._reader, self._node = front.holdings.reader, front.holdings.node
        self._group = group
        self._log = log = bind(_log, resource=name, driver=config.value.driver)
        self._holdings = holdings = front.holdings.by_resource[name]
        self.inventory = Inventory(config, holdings, log)
        self._pools = front.pools
        self._pools.join(self.inventory)
        granting = Granting(config, self.inventory, driver, Releases(self.inventory, driver, log), log)
        self._resource = KubeletCalls(granting, holdings, front.cdi, front.client.apis[0])
        self._handlers = Handlers(self._resource, front.client.apis, self._stream_opened, front.throttle, log)
        self._ownership = Ownership(self._node.directory, name, log)
        self._ownership.join(config.value.pool or "")
        self._ownership.other.subscribe(self._owner_changed)
        self._endpoint = Endpoint(self._ownership, self._handlers, group, log)
        self._callers = Callers(self._endpoint.paths, front.client.is_kubelet)
        self.registrar = Registrar(self._resource, self._endpoint, front.client, group, log)
        self._reminder = Reminder(self._remind)
        journal = Journal(front.state_dir, self._node.directory, name)
        self._remembering = remembering = Remembering(journal, holdings, front.threads, log)
        self._resource.rest()  # as long as another gateway may serve the resource
        self._follows, self._retries = follows, front.handover.retries(name)
        self._newer = newer = NewerSide(self._ownership, self._endpoint.next, self._retries, log)
        served = ServedResource(self._resource, self._endpoint, self.registrar, remembering, newer.parked, log)
        self._older, self._handover = OlderSide(served), front.handover
        self._news = News(self.inventory.list, log, lambda: bool(driver.state.value.failure), holders=self._holders)
        self._stranger = Stranger(name)
        self._telling: asyncio.Task[None] | None = None
        self._taken: tuple[Device, ...] | None = None
        """The driver's list that the inventory took last."""
        self._calls: Lanes | None = None
        """The driver's calls at that time."""
        config.subscribe(self._configured)

    def _configured(self) -> None:
        """What else changed is read when it is used."""
        before, self._known = self._known, self._config.value
        if before.pool != self._known.pool:
            self._ownership.join(self._known.pool or "")
        if before.shares != self._known.shares:
            self._hear_driver()
        if before.shares != self._known.shares or before.preference != self._known.preference:
            self.registrar.options_changed()

    def _holders(self) -> Mapping[str, tuple[str, ...]]:
        return self._holdings.value.named

    def _stream_opened(self, agent: str) -> StreamCallbacks | None:
        return self._callers.opened(partial(self.registrar.stream_opened, agent))

    @property
    def failure(self) -> str:
        """Why there is nothing that a kubelet could give to a container; empty if there may be."""
        return self._trouble.value or self.driver.state.value.failure or self.inventory.misfit.value

    @property
    def stranger(self) -> str:
        """What is wrong with the kubelet's list of this resource: it is another plugin's. Empty if it is ours."""
        return self._stranger.complaint

    @property
    def elsewhere(self) -> str:
        """Which other gateway serves it, and when this one will; empty if none does."""
        return self._ownership.other.value

    @property
    def unsaved(self) -> str:
        """Why what is given away isn't written down; empty if it is."""
        return self._remembering.complaint

    @property
    def outdated(self) -> Mapping[str, str]:
        """Why the container of an id can't be started again, by offered id."""
        return self._resource.answers.outdated.value

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
        return (
            self.inventory.list,
            self._holdings,
            self.registrar.standing,
            self.inventory.misfit,
            self.driver.state,
            self._handlers.refused,
            self._trouble,
            self._resource.answers.outdated,
            self._ownership.other,
        )

    @property
    def failed_since(self) -> float | None:
        """In seconds of the monotonic clock."""
        return self._reminder.since

    def _remind(self, failure: str, seconds: float) -> None:
        text = "the resource has failed for %.0f min: %s"
        self._log.warning(text, seconds / 60, failure, extra={"seconds": seconds, "reason": failure})

    # its life

    async def run(self) -> bool:
        """Serves once there is a directory, registers once there is a list, then follows events until cancelled.

        Returns early if another gateway has taken the resource over: True, or if this one must begin again: False.
        """
        for name, following in (
            ("list", self._follow_driver),
            ("holdings", partial(follow, self._holdings, self.inventory, self._resource.releases)),
            ("answers", self._resource.answers.follow),
            ("notes of answers", self._resource.answers.follow_notes),
            ("journal", self._remembering.follow),
            ("stranger", self._follow_registered),
        ):
            self._group.create_task(following(), name=f"{self.name} {name}")
        try:
            await retry(self._serve, self._failed)
            given = await asyncio.shield(self._older.over)
        except TakenBack as error:
            level = logging.WARNING if self._retries.failed(str(error)) else logging.DEBUG
            self._log.log(level, "%s", error)
            self._ownership.release()
            self.taken_back, given = True, False
        self._pools.elsewhere.add(self.name, "another gateway has taken it over" if given else "a handover failed")
        return given

    def _owner_changed(self) -> None:
        """What an earlier gateway gave away is known once the journal was read."""
        if text := self.elsewhere:
            self._pools.elsewhere.add(self.name, text)
        elif self.served:
            self._pools.elsewhere.drop(self.name)

    async def _serve(self) -> None:
        await self._node.there.wait()
        await self._endpoint.open(partial(self._newer.ask, self._warm) if self._follows else None)
        if self._ownership.waited and not self._newer.took_over:
            await self._pools.others_ended()
        self._ownership.caught_up()
        await self._remembering.load()
        self._pools.elsewhere.drop(self.name)
        self.served = True
        self._trouble.set("")
        self._reminder.hear(self.failure)
        await self.inventory.list.wait(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WRITING):
                await self._holdings_known()
        self.inventory.hold()
        self.inventory.settle()
        self._resource.go_on()
        if self._telling is None:  # what is Unhealthy because another gateway serves it is no news
            self._telling = self._group.create_task(self._news.follow(), name=f"{self.name} news")
        self._resource.answers.look()
        if not self.inventory.list.value and not self.driver.state.value.failure:
            text = "there are no devices yet: driver %s finds none for the options at %s"
            self._log.warning(text, self._config.value.driver, self._config.value.where)
        await self._newer.register(self.registrar)
        self._older.listen(partial(self._handover.asked, self._older))

    async def _warm(self) -> bool:
        """Returns when the resource could be served at once: whether there is a healthy device."""
        await self.inventory.list.wait(0)
        await self.driver.state.wait_for(lambda _: not self.failure)
        await self._noted()
        return self.driver.healthy

    async def _holdings_known(self) -> None:
        """Waits until it is known what containers hold: a first list that misses a held id may crash the kubelet, and
        one that is Unhealthy because nobody knows what the rest of the pool uses costs the pods that come just then.
        """
        await self._noted()
        await self._pools.known(self.name)

    async def _noted(self) -> None:
        await self._holdings.wait_for(lambda holdings: holdings.known)

    def _failed(self, error: Exception) -> None:
        """The resource can't be served now, but may be later: the directory is full, or somebody else's."""
        if not isinstance(error, KubeletError | OSError) or isinstance(error, TakenBack):
            raise error
        level = logging.DEBUG if str(error) == self._trouble.value else logging.ERROR
        self._trouble.set(str(error))
        self._reminder.hear(self.failure)
        self._log.log(level, "the resource can't be served: %s", error, extra={"reason": str(error)})

    async def drain(self, grace: float) -> None:
        """Registers no more, refuses new calls, and waits up to ``grace`` seconds for Allocates in flight."""
        self._reminder.close()
        began = time.monotonic()
        await self._handover.end(self._older, grace)
        grace -= time.monotonic() - began
        self.registrar.stop()
        self.inventory.close()
        await self._endpoint.drain(grace)

    async def close(self) -> None:
        """Ends the streams and the server, and removes the names."""
        if self.served:
            await self._remembering.finish()
        await self._endpoint.close()
        self._older.close()
        self._newer.close()

    def abandon(self) -> None:
        """Removes the names at once, whatever still runs; from any thread."""
        self._endpoint.abandon()

    # what it watches

    async def _follow_driver(self) -> None:
        seen = 0
        while True:
            seen = await self.driver.state.wait(seen)
            self._hear_driver()

    async def _follow_registered(self) -> None:
        """Whether the kubelet lists what this gateway lists, each time it writes that down, and a while after that."""
        registered, seen, again = self._reader.registered, 0, None
        while True:
            before = seen
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again):
                    seen = await registered.wait(seen)
            again = SETTLED + 1.0 if seen != before else None  # once for each that is written
            (ids, written), ours = registered.value, self.inventory.list.value or {}
            found = ids.get(self.name, ()), written, ours.keys(), self.inventory.published
            if self._stranger.look(*found, self.registrar.listed_since, time.monotonic()):
                self._trouble.notify()
                if text := self._stranger.complaint:
                    self._log.warning("%s", text, extra={"reason": text})

    def _hear_driver(self) -> None:
        state, calls = self.driver.state.value, self.driver.calls
        restarted, self._calls = calls is not self._calls, calls
        if restarted and calls is not None:
            self._holdings.given_by(self._config.value.driver if "release" in calls.abilities else "")
        others = False
        if state.devices is not None and (state.devices is not self._taken or not state.failure):
            self._taken = state.devices
            others = self.inventory.take(state.devices, LIST_LIMIT)
            self._resource.releases.tell()
        if state.failure:
            deaf = calls is None or state.devices is None
            self.inventory.fail(state.failure, overdue=state.overdue, deaf=deaf)
        if others or restarted:
            self._resource.answers.look()
        if restarted:  # another driver may have other abilities
            self.registrar.options_changed()
        if self.failure or self._reminder.since is not None:
            self._reminder.hear(self.failure)

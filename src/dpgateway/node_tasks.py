"""The tasks of a node that no resource owns.

Theory of operation. What every node needs runs as long as the gateway (:meth:`NodeTasks.start`). What only some
configurations need is started by the first of them (:meth:`NodeTasks.configure`), and none of its code and libraries is
loaded before:

- *DRA*, for a driver in the configuration, or for claims that an earlier configuration has left, or what drivers owe
  for these.
- *The changes of front*, once there is DRA, and a resource with ``front: auto``. Like DRA they run until the gateway
  ends, because claims and states outlive the configuration that they began with.
- *Kubernetes events*, as long as the configuration has them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpgateway.config import Configuration
from dpgateway.fronts import DISK, Work
from dpgateway.kit.log import bind
from dpgateway.serving import NodeParts
from dpgateway.status.figures import ClusterFigures
from dpgateway.status.overview import Overview

if TYPE_CHECKING:
    from dpgateway.events.writing import EventWriter
    from dpgateway.switching.view import SwitchingGateway

Spawn = Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]
"""Starts a supervised task."""

_log = bind(__name__)


class NodeTasks:
    """Used from the event loop."""

    def __init__(
        self,
        first: Configuration,
        parts: NodeParts,
        overview: Overview,
        gateway: SwitchingGateway,
        spawn: Spawn,
    ) -> None:
        """``first``: the configuration of the start."""
        self._first, self._parts, self._overview = first, parts, overview
        self._gateway, self._spawn = gateway, spawn
        self.all: list[asyncio.Task[None]] = []
        self._due: list[Work] | None = None
        """What starts at the end of :meth:`configure`; None while that doesn't run."""
        self._looking: asyncio.Task[None] | None = None
        """Looks for claims that an earlier configuration has left."""
        self._events: EventWriter | None = None
        self._writing: asyncio.Task[None] | None = None
        """The task of ``_events``; None while the configuration has no Kubernetes events."""
        overview.cluster = self._cluster_figures

    def start(self, *work: Work) -> None:
        if self._due is not None:
            self._due += work
        else:
            self.all += [self._spawn(name, run) for name, run in work]

    async def configure(self, configuration: Configuration) -> None:
        """Starts what this configuration needs and no earlier one did, and configures what runs. One call at a time.

        What it starts begins after it returns: DRA, for example, has to know first what the resources are.
        """
        self._due = []
        try:
            await self._configure(configuration)
        except asyncio.CancelledError:  # the gateway ends, and may have no tasks any more
            self._due = []
            raise
        finally:
            due, self._due = self._due, None
            self.start(*due)

    async def _configure(self, configuration: Configuration) -> None:
        parts, fronts, dra = self._parts, self._parts.fronts, configuration.dra

        if fronts.dra is None and dra.driver is not None:
            self._begin_dra(configuration)
        elif fronts.dra is None and fronts.claims_unknown:
            if self._looking is None:
                self._looking = self._spawn("look for claims", partial(self._serve_left, configuration))
                self.all.append(self._looking)
            if not (await asyncio.wait({self._looking}, timeout=DISK))[0]:
                text = "claims that an earlier configuration may have left are served once the disk answers: %s"
                _log.warning(text, configuration.state_dir)
        if fronts.dra is not None:
            fronts.dra.members.withdraw(withdrawn=dra.withdraw)
            # A front that was started for claims keeps the name of their driver.
            if self._first.dra.driver is None and dra.driver not in (None, fronts.dra.us.driver):
                text = "dra.driver changes with the next start of the gateway only: it serves the claims of %s"
                _log.warning(text, fronts.dra.us.driver)

            if fronts.switch is None and any(one.front == "auto" for one in configuration.resources):
                switch = fronts.add_switch(fronts.dra, self._gateway)
                parts.changed.subscribe(switch.look)
                self.start(("change fronts", switch.run))
            if fronts.switch is not None:
                await fronts.switch.configure(configuration.resources)

        wanted = configuration.cluster.events
        if wanted and self._events is None:
            from dpgateway.events.writing import event_writer  # noqa: PLC0415  18 MB with its libraries

            server = fronts.dra.server if fronts.dra is not None else None
            about = parts.name, self._overview, parts.changed
            self._events = event_writer(configuration, about, fronts.threads, server)
        if wanted and self._events is not None and self._writing is None:
            self._writing = self._spawn("write events", self._events.run)
            self.all.append(self._writing)
        elif not wanted and self._writing is not None:
            self._writing.cancel()
            self._writing = None

    async def _serve_left(self, configuration: Configuration) -> None:
        """Serves the claims of an earlier configuration: they have to end, and be released, even if this one has no
        driver.
        """
        fronts, left = self._parts.fronts, configuration
        if await fronts.has_claims(left):
            driver = await fronts.driver_of_claims(left.state_dir)
            left = replace(left, dra=replace(left.dra, driver=driver or None))
            if fronts.dra is None:  # else a reload has begun it meanwhile
                self._begin_dra(left)
        fronts.claims_unknown = False

    def _begin_dra(self, configuration: Configuration) -> None:
        front = self._parts.fronts.add_dra(configuration)
        for value in front.reporting.values:
            value.subscribe(self._parts.changed.notify)
        self._overview.dra = front
        self.start(("serve DRA", front.run))

    def _cluster_figures(self) -> ClusterFigures:
        servers = {one.server for one in (self._parts.fronts.dra, self._events) if one is not None}
        requests = sum((one.requests for one in servers), Counter[tuple[str, str, str]]())
        answers = [one.up for one in servers if one.up is not None]
        events = dict(self._events.outcomes) if self._events is not None else {}
        return ClusterFigures(all(answers) if answers else None, requests, events)

"""One resource, from its driver to the kubelet: its parts, and how they are wired."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import Api
from dpgateway.deviceplugin.offer.news import News
from dpgateway.deviceplugin.offer.offering import Offering
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.registration.registrar import Registrar, Stream
from dpgateway.deviceplugin.resource import Resource
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.handlers import Handlers
from dpgateway.deviceplugin.server.pace import Pace
from dpgateway.drivers.lanes import Lanes
from dpgateway.drivers.running import RunningDriver
from dpgateway.errors import KubeletError
from dpgateway.model import Options
from dpgateway.node.incarnation import Incarnations
from dpgateway.process.log import bind
from dpgateway.process.pauses import doubling
from dpgateway.process.systemd import Standing

WRITING = 1.0
"""Seconds that a kubelet takes to write its checkpoint, at most. One that is damaged for longer stays so until it is
written anew, and its kubelet, if it started from it, has forgotten what it said."""
LONGEST_PAUSE = 60.0
"""Seconds between two attempts to serve a resource."""
LONGEST_START = 60.0
"""Seconds after which the start is over, whatever isn't: systemd waits 90, unless told otherwise."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Node:
    """What all resources of the node share."""

    name: str
    directory: Path
    """The kubelet's device-plugins directory."""
    apis: tuple[Api, ...]
    client: KubeletClient
    group: asyncio.TaskGroup
    read_checkpoint: Callable[[], None]
    incarnations: Incarnations = field(default_factory=Incarnations)
    pace: Pace = field(default_factory=Pace)
    directory_there: asyncio.Event = field(default_factory=asyncio.Event)


class Unit:
    """One resource, from its driver to the kubelet."""

    def __init__(self, config: ResourceConfig, node: Node) -> None:
        self.name = config.name
        self._source = f"driver {config.driver}", config.where
        self._node = node
        self._log = bind(_log, resource=config.name)
        self.offering = Offering(config, self._log, node.read_checkpoint)
        self.resource = Resource(config, self.offering, self._log, node.apis[0])
        self.handlers = Handlers(self.resource, node.apis, self, node.pace, self._log)
        self.endpoint = Endpoint(node.directory, config.name, self.handlers, self._log)
        self.driver = RunningDriver(config, node.name, self.offering, self._attach, self._log)
        self.news = News(self.offering.inventory, self._log, lambda: bool(self.driver.failure))
        self.registrar: Registrar = Registrar(self, node.apis, node.client, node.group, self._log)
        self.ready = False
        """It is served, and there is a list: it can be registered."""
        self.served = False
        self.trouble = ""
        """Why it can't be served."""
        # a second later than the driver's own deadline, after which its failure is known
        self._settled_by = time.monotonic() + min(config.timeouts.list.total_seconds() + 1, LONGEST_START)

    async def serve(self) -> None:
        """Serves as soon as there is a directory and a list, then leaves the rest to events."""
        await self._node.directory_there.wait()
        await self.endpoint.open()
        self.served, self.trouble = True, ""
        first = await self.offering.inventory.newer(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WRITING):
                await self.offering.known.wait()
        self.ready = True
        if not first.offers and not self.driver.failure:
            self._log.warning("there are no devices yet: %s finds none for the options at %s", *self._source)
        if self._node.incarnations.there:
            self.registrar.kubelet_new()

    async def persist(self) -> None:
        """Serves; if that can't be done now, it may be later: the directory is full, or somebody else's."""
        failures = 0
        while not self.ready:
            try:
                await self.serve()
            except (KubeletError, OSError) as error:
                failures += 1
                level = logging.DEBUG if str(error) == self.trouble else logging.ERROR
                self.trouble = str(error)
                self._log.log(level, "the resource can't be served: %s", error)
                await asyncio.sleep(doubling(failures, LONGEST_PAUSE))

    def standing(self) -> Standing:
        failed = bool(self.trouble or self.driver.failure or self.offering.failure)
        served = self.served or not self._node.directory_there.is_set()
        listed = self.offering.inventory.current is not None
        settled = failed or (served and listed) or time.monotonic() >= self._settled_by
        return Standing(self.name, settled, self.registrar.streaming, failed)

    def _attach(self, lanes: Lanes | None) -> None:
        self.resource.calls = lanes
        self.registrar.options_changed()

    # what the registrar asks for

    def options(self) -> Options:
        return self.resource.options()

    def speak(self, api: Api) -> None:
        self.resource.api = api

    async def link(self) -> str:
        return await self.endpoint.link()

    def settled(self) -> None:
        self.endpoint.settled()

    def end_streams(self) -> None:
        self.handlers.end_streams()

    # what the handlers tell

    def opened(self) -> Stream:
        return self.registrar.stream_opened()

    def closed(self, stream: object) -> None:
        if isinstance(stream, Stream):
            self.registrar.stream_closed(stream)

"""What the kubelet's device manager has to see of a resource that DRA offers.

Theory of operation. The device manager doesn't know which pods have a resource by DRA. Whenever a container starts, it
looks at each resource that it knows, by a registration or by an id that a container holds (GetDeviceRunContainerOptions
in pkg/kubelet/cm/devicemanager/manager.go, 1.36 and 1.37):

- The plugin asked for PreStartContainer: a container by DRA fails, ``no devices found allocated in local cache``. The
  options of a plugin that has gone count for another 5 min.
- No plugin is known any more, 5 min after its end, and an id is held: every container with the resource fails,
  ``endpoint not found in cache for a registered resource``; those by DRA, and those with the id that start again.
- Otherwise it leaves containers by DRA alone (isDRAExtendedResource, behind an Allocate of its own that may end the
  kubelet: docs/design/dra.md, What is missing).

So a resource that has gone to DRA is registered again, with an empty list, and without PreStartContainer: until the
kubelet has heard of that once, and for as long as a container holds an id of the device plugin.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import grpc.aio

from dpgateway.deviceplugin.api.table import Call
from dpgateway.deviceplugin.api.v1beta1 import API
from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.server.handlers import KUBELET_AGENT, ServicerContext
from dpgateway.deviceplugin.server.serving import Server
from dpgateway.deviceplugin.server.sockets import SocketNames
from dpgateway.deviceplugin.values import Options, Registration
from dpgateway.errors import KubeletError
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Signal
from dpgateway.kit.tasks import backoff, first
from dpgateway.resource.ownership import FOLDER
from dpgateway.resource.resource import Resource

STREAM_DUE = 15.0
"""Timeout in seconds from Register's success to ListAndWatch, as of each registration (``registration.registrar``)."""
LONGEST = 60.0
"""Seconds between two attempts."""

_NOTHING = Options()
_log = bind(__name__)


class Remainders:
    """Those of all resources that DRA offers. Used from the event loop."""

    def __init__(self, holdings: NodeHoldings, client: KubeletClient) -> None:
        self._holdings, self._client = holdings, client
        self._resources: dict[str, Resource] = {}
        self._heard: set[str] = set()
        """The resources that the kubelet knows without PreStartContainer by now."""
        self._changed = Signal()
        holdings.reader.registered.subscribe(self._changed.notify)

    def add(self, resource: Resource) -> None:
        """DRA offers this resource from now on, perhaps anew."""
        self._resources[resource.name] = resource
        if (holdings := self._holdings.by_resource.get(resource.name)) is not None:
            holdings.subscribe(self._changed.notify)
        self._changed.notify()

    def remove(self, name: str) -> None:
        """DRA doesn't offer it any more."""
        self._heard.discard(name)
        if self._resources.pop(name, None) is not None:
            self._changed.notify()

    async def run(self) -> None:
        """Never returns."""
        running: dict[Resource, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                # Those that the kubelet may know as a device plugin's. Its checkpoint names each that it knows.
                version, wanted = self._changed.version, set[Resource]()
                registered, _ = self._holdings.reader.registered.value
                for name, resource in self._resources.items():
                    holdings = self._holdings.by_resource.get(name)
                    held = holdings is not None and holdings.value.last_known
                    if held or (name in registered and name not in self._heard):
                        wanted.add(resource)
                for one in running.keys() - wanted:
                    running.pop(one).cancel()
                for one in wanted - running.keys():
                    running[one] = group.create_task(self._serve(one), name=f"{one.name} remainder")
                await self._changed.wait(version)

    async def _serve(self, resource: Resource) -> None:
        """Keeps it registered until it is cancelled."""
        await resource.begun.wait()  # until then another gateway may serve it, and has a remainder of its own
        log, failures = bind(_log, resource=resource.name), 0
        # The numbers of the socket's names are those of ``server.sockets``: the owner of the resource owns them all.
        numbers = itertools.count(time.time_ns() // 1_000_000)
        log.info("the kubelet knows the resource as a device plugin's, so it is registered without devices")
        with suppress(OSError):
            SocketNames(resource.ownership).sweep()  # those of a gateway that was killed
        while True:
            appeared, began = self._holdings.node.appeared.version, time.monotonic()
            try:
                await self._register(resource, next(numbers))
                reason = "the kubelet ended the stream"
            except (KubeletError, OSError, RuntimeError, TimeoutError) as error:
                reason = str(error)
            failures = 1 if time.monotonic() - began > LONGEST else failures + 1
            log.debug("the resource without devices is registered again: %s", reason)
            await first(self._holdings.node.appeared.wait(appeared), within=backoff(failures, LONGEST, 0.25))

    async def _register(self, resource: Resource, number: int) -> None:
        """Registers it, and returns when the kubelet ends the stream. Each registration is a server of its own, at a
        path that no other one had: ``number`` makes it. Raises KubeletError, OSError, RuntimeError, TimeoutError.
        """
        path = resource.ownership.folder / f"{resource.ownership.hash}-{number}.sock"
        opened, ended = asyncio.Event(), asyncio.Event()

        async def watch(_: bytes, context: ServicerContext) -> AsyncIterator[bytes]:
            agent = next((str(value) for key, value in context.invocation_metadata() or () if key == "user-agent"), "")
            if agent.startswith(KUBELET_AGENT):
                opened.set()
            try:
                yield b""
                # It has options and list.
                self._heard.add(resource.name)
                self._changed.notify()
                await asyncio.Event().wait()
            finally:
                ended.set()

        async def options(_: bytes, __: ServicerContext) -> bytes:
            return API.by_call[Call.OPTIONS].encode(_NOTHING)

        methods = {
            API.by_call[Call.OPTIONS].name: grpc.unary_unary_rpc_method_handler(options),
            API.by_call[Call.WATCH].name: grpc.unary_stream_rpc_method_handler(watch),
        }
        server = Server(path, [grpc.method_handlers_generic_handler(API.service, methods)])
        try:
            await server.start()
            path.chmod(0o600)
            await self._client.register(API, Registration(resource.name, f"{FOLDER}/{path.name}", _NOTHING))
            async with asyncio.timeout(STREAM_DUE):
                await opened.wait()
            await ended.wait()
        finally:
            await server.stop(0)
            with suppress(OSError):
                path.unlink()

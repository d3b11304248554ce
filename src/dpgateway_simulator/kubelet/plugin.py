"""The kubelet's connection to one device plugin: the RPCs as the release encodes and decodes them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from grpclib.metadata import Deadline

from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.errors import PluginError
from dpgateway_simulator.wire import v1beta1
from dpgateway_simulator.wire.client import FAILURES, GoChannel, explain
from dpgateway_simulator.wire.device_list import Device, DeviceList
from dpgateway_simulator.wire.dialects import DIALECTS, Answer, Options

T = TypeVar("T")
PRE_START_TIMEOUT = 30  # KubeletPreStartContainerRPCTimeoutInSecs


class PluginClient:
    """One connection to one plugin. A failed call raises PluginError."""

    def __init__(self, behaviour: Behaviour, resource: str, path: Path, endpoint: str) -> None:
        self.resource, self.path = resource, path
        self._behaviour, self._dialect = behaviour, DIALECTS[behaviour.api]
        self._service = f"/{self._dialect.package}.DevicePlugin"
        authority = str(path) if behaviour.authority == "path" else "localhost"
        limit = behaviour.receive_limit
        self._channel = GoChannel(path, endpoint, user_agent=behaviour.user_agent, authority=authority, limit=limit)
        self._stub = v1beta1.DevicePluginStub(self._channel)
        self._unary = self._stub._unary_unary  # noqa: SLF001  the stub's own methods have the package in their paths

    async def dial(self) -> None:
        """Connects. Raises OSError if nothing serves the socket."""
        await self._channel.dial()

    def close(self) -> None:
        """Ends the connection and with it every call and stream on it."""
        self._channel.close()

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        """ListAndWatch: yields each list until the stream ends."""
        path = f"{self._service}/ListAndWatch"
        stream = cast(
            "AsyncGenerator[DeviceList]",
            self._stub._unary_stream(path, v1beta1.Empty(), DeviceList),  # noqa: SLF001
        )
        try:
            async for message in stream:
                devices = message.devices
                if not self._behaviour.topology:  # kubelets before 1.16 don't decode it
                    devices = tuple(Device(one.id, one.health) for one in devices)
                yield devices
        except FAILURES as error:
            raise PluginError(explain(error, self.path)) from error
        finally:
            await stream.aclose()

    async def options(self, deadline: Deadline | None = None) -> Options:
        """GetDevicePluginOptions."""
        path, empty = f"{self._service}/GetDevicePluginOptions", v1beta1.Empty()
        return await self._call(self._unary(path, empty, Options, deadline=deadline))

    async def allocate(self, ids: Sequence[str]) -> Answer | None:
        """Allocate for one container, without a deadline; None if the answer contains no container."""
        answer = await self._call(self._dialect.allocate(self._channel, ids))
        if answer is not None and not self._behaviour.cdi:  # before 1.29 the field is unknown, or its gate is off
            answer.cdi_devices = []
        return answer

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> set[str]:
        """GetPreferredAllocation for one container, without a deadline."""
        one = v1beta1.ContainerPreferredAllocationRequest(list(available), list(must), size)
        path, request = f"{self._service}/GetPreferredAllocation", v1beta1.PreferredAllocationRequest([one])
        answer = await self._call(self._unary(path, request, v1beta1.PreferredAllocationResponse))
        return set(answer.container_responses[0].device_i_ds) if answer.container_responses else set()

    async def pre_start(self, ids: Sequence[str]) -> None:
        """PreStartContainer, within 30 seconds."""
        path, request = f"{self._service}/PreStartContainer", v1beta1.PreStartContainerRequest(devices_ids=list(ids))
        await self._call(self._unary(path, request, v1beta1.PreStartContainerResponse, timeout=PRE_START_TIMEOUT))

    async def _call(self, rpc: Awaitable[T]) -> T:
        try:
            return await rpc
        except asyncio.CancelledError:
            raise
        except FAILURES as error:
            raise PluginError(explain(error, self.path)) from error

"""One resource on its socket, with a driver and a kubelet that a test plays."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc.aio

from dpgateway import Allocation
from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.handlers import Handlers, StreamCallbacks
from dpgateway.deviceplugin.server.streams import ListThrottle
from dpgateway.deviceplugin.wire import v1alpha2_pb2, v1beta1_pb2
from dpgateway.kit.log import Bound
from dpgateway.kit.observable import Signal
from dpgateway.resource.ownership import Ownership
from tests.support.resource import FakeLanes, FakeResource, nobody_holds_anything
from tests.support.resources import configured

V1BETA1, V1ALPHA = "/v1beta1.DevicePlugin", "/deviceplugin.DevicePlugin"
KUBELET = "grpc-go/1.72.1"


class Audience:
    """Who is told of a kubelet's streams."""

    def __init__(self) -> None:
        self.opened_streams: list[object] = []
        self.open: set[object] = set()
        self.listed: list[object] = []
        """A stream for each list that was sent."""

    def opened(self) -> StreamCallbacks:
        stream = object()
        self.opened_streams.append(stream)
        self.open.add(stream)
        return StreamCallbacks(lambda: self.listed.append(stream), lambda: self.open.remove(stream))


def group() -> Any:
    """Stands in for a TaskGroup: its tasks end with the test's event loop."""
    return _Group()


class _Group:
    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def create_task(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        self._tasks.append(asyncio.create_task(coroutine, name=name))
        return self._tasks[-1]


class Served(FakeResource):
    """One resource on its socket."""

    def __init__(self, directory: Path, log: Bound, delivery: CdiDelivery | None = None, **config: Any) -> None:
        lanes, holdings = FakeLanes("prepare", allocation=Allocation(env={"A": "1"})), nobody_holds_anything()
        super().__init__(configured(**config), lanes, time, holdings=holdings, delivery=delivery, log=log)
        self.directory, self.audience = directory, Audience()
        self.handlers = Handlers(self.calls, APIS, self._opened, ListThrottle(Signal()), log)
        self.endpoint = Endpoint(Ownership(directory, self.handlers.name, log), self.handlers, group(), log)

    def _opened(self, agent: str) -> StreamCallbacks:
        self.calls.remember_agent(agent)
        return self.audience.opened()

    @property
    def folder(self) -> Path:
        return self.directory / "dpgateway"

    @property
    def socket(self) -> Path:
        """The one that is bound; its links have a number."""
        (bound,) = [path for path in self.folder.glob("*.sock") if "-" not in path.name]
        return bound

    async def close(self) -> None:
        self.end()
        await self.endpoint.close()
        self.endpoint.ownership.end()


class Client:
    """A kubelet, or another client, on one connection."""

    def __init__(self, socket: Path, agent: str = KUBELET) -> None:
        options = [
            ("grpc.primary_user_agent", agent),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
        ]
        self.channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)

    def call(self, method: str, request: Any = b"", path: str = V1BETA1) -> Any:
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        return self.channel.unary_unary(f"{path}/{method}")(raw, timeout=30)

    def watch(self, path: str = V1BETA1, request: bytes = b"") -> Any:
        return self.channel.unary_stream(f"{path}/ListAndWatch")(request)

    async def close(self) -> None:
        await self.channel.close()


def health(raw: Any, path: str = V1BETA1) -> dict[str, str]:
    """A list's ids with their health."""
    kind = v1beta1_pb2 if path == V1BETA1 else v1alpha2_pb2
    return {device.ID: device.health for device in kind.ListAndWatchResponse.FromString(raw).devices}


async def status(call: Any) -> tuple[grpc.StatusCode, str]:
    """How an RPC failed."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("it didn't fail")

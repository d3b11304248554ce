"""Somebody else who listens to the gateway: sees each list as it is, not as some release of the kubelet counts it."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import grpc.aio

from dpgateway_simulator.wire.v1beta1 import ListAndWatchResponse

# The gateway is about to serve the socket: don't wait a second to look again, nor remember an earlier failure.
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 20)]
_OPTIONS += [("grpc.min_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 50)]


class Observer:
    """Follows one resource's socket; a new one for each run of the gateway."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._changed = asyncio.Condition()
        self.listed: dict[str, bool] | None = None
        """Id -> whether it is healthy; None before the first list."""
        self._task = asyncio.create_task(self._follow(), name="observer")

    async def _follow(self) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=_OPTIONS) as channel:
            call = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")
            async for raw in call(b"", wait_for_ready=True):
                async with self._changed:
                    devices = ListAndWatchResponse().parse(raw).devices
                    self.listed = {device.id: device.health == "Healthy" for device in devices}
                    self._changed.notify_all()

    async def wait_for(self, right: Callable[[dict[str, bool]], bool], timeout: float = 30) -> dict[str, bool]:  # noqa: ASYNC109
        """The first list that is right."""
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: self.listed is not None and right(self.listed))
        assert self.listed is not None
        return self.listed

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
            await self._task

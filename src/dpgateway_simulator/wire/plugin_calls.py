"""The calls to a plugin that registers in plugins_registry: Registration, and DRA with its health.

v1 and v1beta1 of DRA have the same messages, v1 and v1alpha1 of its health as well, so only the paths differ.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import betterproto

from dpgateway_simulator.wire import pluginregistration, v1
from dpgateway_simulator.wire.client import FAILURES, GoChannel, explain
from dpgateway_simulator.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra
from dpgateway_simulator.wire.sockets import REAL_ROOT

T = TypeVar("T")
DRA = "/k8s.io.kubelet.pkg.apis.dra."  # before a service as a plugin registers it: v1.DRAPlugin
INFO_TIMEOUT = 1.0  # getInfo's, in pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go


class CallError(Exception):
    """A call failed, with grpc-go's text. `unimplemented`: the plugin doesn't have the method."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.unimplemented = "code = Unimplemented" in text


class PluginCalls:
    """One connection to one socket of a plugin. A failed call raises CallError, also one whose task is cancelled when
    the connection is closed: grpclib turns one into the other, so a loop ends by `closed`.
    """

    def __init__(self, root: Path, path: Path, user_agent: str) -> None:
        """`root`: the kubelet's --root-dir, which stands for /var/lib/kubelet."""
        below = path.is_relative_to(root)
        name, real = (str(path.relative_to(root)), REAL_ROOT) if below else (str(path), "")
        self.path = path
        self._channel = GoChannel(path, name, user_agent=user_agent, authority="localhost", limit=4 << 20, real=real)
        self._stub = betterproto.ServiceStub(self._channel)

    @property
    def closed(self) -> bool:
        return self._channel.closed

    async def dial(self) -> None:
        """Connects. Raises OSError."""
        await self._channel.dial()

    async def lost(self) -> None:
        """Returns once the connection is lost. Raises OSError."""
        await self._channel.lost()

    def close(self) -> None:
        self._channel.close()

    async def info(self) -> pluginregistration.PluginInfo:
        request = pluginregistration.InfoRequest()
        return await self._call("/pluginregistration.Registration/GetInfo", request, pluginregistration.PluginInfo, INFO_TIMEOUT)

    async def notify(self, error: str) -> None:
        """NotifyRegistrationStatus; an empty error says that the plugin is registered."""
        request = pluginregistration.RegistrationStatus(plugin_registered=not error, error=error)
        answer = pluginregistration.RegistrationStatusResponse
        await self._call("/pluginregistration.Registration/NotifyRegistrationStatus", request, answer, 10.0)

    async def prepare(
        self, service: str, claims: Sequence[dra.Claim], seconds: float
    ) -> dict[str, dra.NodePrepareResourceResponse]:
        """NodePrepareResources: the answer for each claim, by its uid."""
        path, request = f"{DRA}{service}/NodePrepareResources", dra.NodePrepareResourcesRequest(list(claims))
        return (await self._call(path, request, dra.NodePrepareResourcesResponse, seconds)).claims

    async def unprepare(
        self, service: str, claims: Sequence[dra.Claim], seconds: float
    ) -> dict[str, dra.NodeUnprepareResourceResponse]:
        """NodeUnprepareResources: the answer for each claim, by its uid."""
        path, request = f"{DRA}{service}/NodeUnprepareResources", dra.NodeUnprepareResourcesRequest(list(claims))
        return (await self._call(path, request, dra.NodeUnprepareResourcesResponse, seconds)).claims

    async def health(self, package: str) -> AsyncIterator[v1.NodeWatchResourcesResponse]:
        """NodeWatchResources: yields until the stream ends."""
        path, answer = f"/{package}.DRAResourceHealth/NodeWatchResources", v1.NodeWatchResourcesResponse
        stream = cast(
            "AsyncGenerator[v1.NodeWatchResourcesResponse]",
            self._stub._unary_stream(path, v1.NodeWatchResourcesRequest(), answer),  # noqa: SLF001
        )
        try:
            async for message in stream:
                yield message
        except FAILURES as error:
            raise CallError(explain(error, self.path)) from error
        finally:
            await stream.aclose()

    async def _call(self, path: str, request: betterproto.Message, answer: type[T], seconds: float) -> T:
        rpc = cast("Awaitable[T]", self._stub._unary_unary(path, request, answer, timeout=seconds))  # noqa: SLF001
        try:
            return await rpc
        except asyncio.CancelledError:
            raise
        except FAILURES as error:
            raise CallError(explain(error, self.path)) from error

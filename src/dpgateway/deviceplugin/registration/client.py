"""Register, the only RPC from us to the kubelet.

All resources share one channel per incarnation of the kubelet; a failed channel is discarded. ``lifecycle`` decides
when to register.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio

from dpgateway.deviceplugin.api import Api
from dpgateway.deviceplugin.registration.refusals import GATHERING, Refusals
from dpgateway.deviceplugin.values import Registration
from dpgateway.errors import KubeletError
from dpgateway.kit.channel import Channel
from dpgateway.kit.unix import Credentials, connect, credentials
from dpgateway.node.directory import SOCKET

DEADLINE = 30.0
"""Seconds. From 1.25 on, the kubelet dials back within Register, for up to 10 s, and asks for the options
(pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go)."""


class ApiRefused(KubeletError):
    """The kubelet doesn't speak this version of the API."""


class RegisterFailed(KubeletError):
    """Register failed for another reason."""

    def __init__(self, text: str, *, listening: bool) -> None:
        super().__init__(text)
        self.listening = listening
        """Whether the socket was served; otherwise the kubelet may just be starting."""


class KubeletClient:
    """Used from the event loop."""

    def __init__(
        self,
        directory: Path,
        apis: tuple[Api, ...],
        group: asyncio.TaskGroup,
        deadline: float = DEADLINE,
        gathering: float = GATHERING,
    ) -> None:
        """``apis``: the versions to try, newest first. ``deadline`` of Register, and ``gathering``: seconds."""
        self._socket, self._group, self._deadline = directory / SOCKET, group, deadline
        self._channel: Channel | None = None
        self.apis = apis
        self.changing: Callable[[], bool] = lambda: False
        """Whether another kubelet has come, and the resources aren't told yet; set by the owner."""
        self._refusals = Refusals([api.name for api in apis], gathering)
        self.accepted: Api | None = None
        """The version that this incarnation accepted last, which the next resource tries first."""
        self._process: Credentials | None = None
        """The process that listened on kubelet.sock when last dialled in this incarnation."""

    def new_kubelet(self) -> None:
        self.accepted = self._process = None
        self._refusals.forget()
        self._discard(self._channel)

    def is_kubelet(self, peer: Credentials) -> bool:
        """Whether ``peer`` is the process that listens on kubelet.sock. True if that is unknown."""
        if peer != self._process:  # another kubelet may have come since the last look
            with (
                contextlib.suppress(OSError),
                connect(self._socket) as connection,
            ):
                self._process = credentials(connection)
        return self._process is None or peer == self._process

    async def register(self, api: Api, registration: Registration) -> None:
        """Raises ApiRefused or RegisterFailed."""
        if self._channel is None:
            self._channel = Channel(self._socket)
        channel = self._channel
        call = channel.unary_unary(api.register_path)
        try:
            await call(api.to_register(registration), timeout=self._deadline)
        except grpc.aio.AioRpcError as error:
            code, text = error.code(), error.details() or ""
            # 1.8 answers "unsupported API version", later ones "requested API version ... is not supported". A service
            # of another package is UNIMPLEMENTED, because kubelet.sock serves exactly one.
            if code is grpc.StatusCode.UNIMPLEMENTED or "API version" in text:
                self._refusals.refused(registration.resource, api.name, f"{code.name}: {text}")
                raise ApiRefused(text) from error
            listening = code is not grpc.StatusCode.UNAVAILABLE
            if not listening:
                self._discard(channel)
            if "Connection refused" in text:
                text = f"nothing listens on {self._socket}: a kubelet left it behind, or is only starting"
            raise RegisterFailed(f"{code.name}: {text}", listening=listening) from error
        self._refusals.accepted(registration.resource)
        self.accepted = api

    def _discard(self, channel: Channel | None) -> None:
        """Replaces the channel. It is closed after a deadline, because other resources may await answers on it."""
        if channel is None or channel is not self._channel:
            return
        self._channel = None
        self._group.create_task(channel.close(self._deadline), name="close a channel to the kubelet")

    async def close(self) -> None:
        self._refusals.forget()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

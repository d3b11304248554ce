"""The kubelet's side of one device plugin: its RPCs in the dialect of the release, answers as plain values."""

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.metadata import Deadline

from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.errors import PluginError
from dpgateway_simulator.wire import deviceplugin as v1alpha2
from dpgateway_simulator.wire import v1beta1
from dpgateway_simulator.wire.device_list import Device, DeviceList
from dpgateway_simulator.wire.deviceplugin import v0_1
from dpgateway_simulator.wire.transport import GoChannel

T = TypeVar("T")
Answer = v1beta1.ContainerAllocateResponse  # what is kept, in every release: a superset of the older messages
PRE_START_TIMEOUT = 30  # KubeletPreStartContainerRPCTimeoutInSecs
_CODES = {status: status.name.title().replace("_", "") for status in Status} | {Status.CANCELLED: "Canceled"}
_FAILURES = (GRPCError, ProtocolError, StreamTerminatedError, TimeoutError, OSError, AssertionError)


@dataclass(frozen=True)
class Options:
    """What a plugin asks of the kubelet."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


def explain(error: BaseException, path: Path) -> str:
    """The error as grpc-go prints it."""
    if isinstance(error, GRPCError):
        return f"rpc error: code = {_CODES[error.status]} desc = {error.message or ''}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    if isinstance(error, OSError) and error.errno is not None:
        reason = f"dial unix {path}: connect: {errno_text(error.errno)}"
        text = f'connection error: desc = "transport: Error while dialing: {reason}"'
        return f"rpc error: code = Unavailable desc = {text}"
    return f"rpc error: code = Unavailable desc = error reading from server: {error or 'EOF'}"


def errno_text(number: int) -> str:
    """Go's words for an errno: lower case."""
    return {
        errno.ENOENT: "no such file or directory",
        errno.ECONNREFUSED: "connection refused",
        errno.EINVAL: "invalid argument",
        errno.EACCES: "permission denied",
    }.get(number, f"errno {number}")


class Plugin:
    """One connection to one plugin."""

    def __init__(self, behaviour: Behaviour, resource: str, path: Path, endpoint: str) -> None:
        self.resource, self.path = resource, path
        self._behaviour = behaviour
        authority = str(path) if behaviour.authority == "path" else "localhost"
        limit = behaviour.receive_limit
        self._channel = GoChannel(path, endpoint, user_agent=behaviour.user_agent, authority=authority, limit=limit)
        self._beta = v1beta1.DevicePluginStub(self._channel)
        self._alpha = v1alpha2.DevicePluginStub(self._channel)

    async def dial(self) -> None:
        """Connects; OSError when nobody serves there."""
        await self._channel.dial()

    def close(self) -> None:
        """Ends the connection and with it every call and stream on it."""
        self._channel.close()

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        """ListAndWatch: each list as it comes, until the stream ends; a failed stream raises PluginError."""
        path = f"/{self._behaviour.package}.DevicePlugin/ListAndWatch"
        stream = cast(
            "AsyncGenerator[DeviceList]",
            self._beta._unary_stream(path, v1beta1.Empty(), DeviceList),  # noqa: SLF001
        )
        try:
            async for message in stream:
                yield message.devices if self._behaviour.topology else tuple(map(_flat, message.devices))
        except _FAILURES as error:
            raise PluginError(explain(error, self.path)) from error
        finally:
            await stream.aclose()

    async def options(self, deadline: Deadline | None = None) -> Options:
        """GetDevicePluginOptions."""
        answer = await self._call(self._beta.get_device_plugin_options(v1beta1.Empty(), deadline=deadline))
        return Options(answer.pre_start_required, answer.get_preferred_allocation_available)

    async def allocate(self, ids: Sequence[str]) -> Answer | None:
        """Allocate for one container, without a deadline; None when the answer holds no container."""
        if self._behaviour.api == "0.1":
            return _merged(await self._call(self._allocate_0_1(ids)))
        if self._behaviour.api == "v1alpha2":
            old = await self._call(self._alpha.allocate(v1alpha2.AllocateRequest(devices_i_ds=list(ids))))
            return _answer(old.envs, old.mounts, old.devices)
        request = v1beta1.AllocateRequest([v1beta1.ContainerAllocateRequest(devices_ids=list(ids))])
        responses = (await self._call(self._beta.allocate(request))).container_responses
        if not responses:
            return None
        first = responses[0]
        cdi = first.cdi_devices if self._behaviour.cdi else []
        return _answer(first.envs, first.mounts, first.devices, first.annotations, cdi)

    async def _allocate_0_1(self, ids: Sequence[str]) -> v0_1.AllocateResponse:
        request = v1alpha2.AllocateRequest(devices_i_ds=list(ids))
        path = "/deviceplugin.DevicePlugin/Allocate"
        return await self._alpha._unary_unary(path, request, v0_1.AllocateResponse)  # noqa: SLF001

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> set[str]:
        """GetPreferredAllocation for one container, without a deadline."""
        one = v1beta1.ContainerPreferredAllocationRequest(list(available), list(must), size)
        answer = await self._call(self._beta.get_preferred_allocation(v1beta1.PreferredAllocationRequest([one])))
        return set(answer.container_responses[0].device_i_ds) if answer.container_responses else set()

    async def pre_start(self, ids: Sequence[str]) -> None:
        """PreStartContainer; 30 seconds."""
        request = v1beta1.PreStartContainerRequest(devices_ids=list(ids))
        await self._call(self._beta.pre_start_container(request, timeout=PRE_START_TIMEOUT))

    async def _call(self, rpc: Awaitable[T]) -> T:
        try:
            return await rpc
        except asyncio.CancelledError:
            raise
        except _FAILURES as error:
            raise PluginError(explain(error, self.path)) from error


def _flat(device: Device) -> Device:
    """Before 1.16 a kubelet doesn't know of topology."""
    return Device(device.id, device.health)


def _answer(
    envs: dict[str, str],
    mounts: Sequence[v1beta1.Mount | v1alpha2.Mount | v0_1.Mount],
    devices: Sequence[v1beta1.DeviceSpec | v1alpha2.DeviceSpec | v0_1.DeviceSpec],
    annotations: dict[str, str] | None = None,
    cdi_devices: Sequence[v1beta1.CdiDevice] = (),
) -> Answer:
    return Answer(
        envs=dict(envs),
        mounts=[v1beta1.Mount(one.container_path, one.host_path, one.read_only) for one in mounts],
        devices=[v1beta1.DeviceSpec(one.container_path, one.host_path, one.permissions) for one in devices],
        annotations=dict(annotations or {}),
        cdi_devices=[v1beta1.CdiDevice(one.name) for one in cdi_devices],
    )


def _merged(response: v0_1.AllocateResponse) -> Answer:
    """All of 0.1's specs in one; the container manager of 1.8 adds them up as they come."""
    envs: dict[str, str] = {}
    for spec in response.spec:
        envs = spec.envs | envs  # the first one wins
    mounts = [mount for spec in response.spec for mount in spec.mounts]
    return _answer(envs, mounts, [device for spec in response.spec for device in spec.devices])

"""Register and Allocate in each device-plugin API.

Answers of the older APIs are converted to v1beta1's messages, which cover all of their fields.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import betterproto
from grpclib.const import Handler
from grpclib.metadata import Deadline
from grpclib.server import Stream

from dpgateway_simulator.wire import deviceplugin as v1alpha2
from dpgateway_simulator.wire import v1beta1
from dpgateway_simulator.wire.client import GoChannel
from dpgateway_simulator.wire.deviceplugin import v0_1

Answer = v1beta1.ContainerAllocateResponse
Options = v1beta1.DevicePluginOptions
Service = v1beta1.RegistrationBase | v1alpha2.RegistrationBase


@dataclass(frozen=True)
class Registration:
    """A Register request."""

    version: str
    endpoint: str
    resource: str
    options: Options | None = None
    deadline: Deadline | None = None  # the caller's


Register = Callable[[Registration], Awaitable[None]]


@dataclass(frozen=True)
class Dialect:
    """One API. `allocate` calls Allocate for one container, without a deadline; None if the answer contains none."""

    package: str  # gRPC's
    allocate: Callable[[GoChannel, Sequence[str]], Awaitable[Answer | None]]
    service: Callable[[Register], Service]


async def _allocate_0_1(channel: GoChannel, ids: Sequence[str]) -> Answer:
    request = v1alpha2.AllocateRequest(devices_i_ds=list(ids))
    stub, path = v1alpha2.DevicePluginStub(channel), "/deviceplugin.DevicePlugin/Allocate"
    response = await stub._unary_unary(path, request, v0_1.AllocateResponse)  # noqa: SLF001  another answer

    # All specs are one answer, in their order, as the container manager of 1.8 adds them up.
    envs: dict[str, str] = {}
    for spec in response.spec:
        envs = spec.envs | envs  # the first one wins
    mounts = [mount for spec in response.spec for mount in spec.mounts]
    return _answer(envs, mounts, [device for spec in response.spec for device in spec.devices])


async def _allocate_v1alpha2(channel: GoChannel, ids: Sequence[str]) -> Answer:
    request = v1alpha2.AllocateRequest(devices_i_ds=list(ids))
    answer = await v1alpha2.DevicePluginStub(channel).allocate(request)
    return _answer(answer.envs, answer.mounts, answer.devices)


async def _allocate_v1beta1(channel: GoChannel, ids: Sequence[str]) -> Answer | None:
    request = v1beta1.AllocateRequest([v1beta1.ContainerAllocateRequest(devices_ids=list(ids))])
    responses = (await v1beta1.DevicePluginStub(channel).allocate(request)).container_responses
    if not responses:
        return None
    one = responses[0]
    return _answer(one.envs, one.mounts, one.devices, one.annotations, one.cdi_devices)


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


_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def _noting_deadline(method: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Stores the call's deadline in a context variable: the generated services pass on the request only."""

    async def call(stream: Stream[Any, Any]) -> None:
        _DEADLINE.set(stream.deadline)
        await method(stream)

    return call


class _Beta(v1beta1.RegistrationBase):
    def __init__(self, register: Register) -> None:
        self._register = register

    async def register(self, register_request: v1beta1.RegisterRequest) -> v1beta1.Empty:
        one = register_request
        options = one.options if betterproto.serialized_on_wire(one.options) else None
        await self._register(Registration(one.version, one.endpoint, one.resource_name, options, _DEADLINE.get()))
        return v1beta1.Empty()

    def __mapping__(self) -> dict[str, Handler]:
        return {path: one._replace(func=_noting_deadline(one.func)) for path, one in super().__mapping__().items()}


class _Alpha(v1alpha2.RegistrationBase):
    def __init__(self, register: Register) -> None:
        self._register = register

    async def register(self, register_request: v1alpha2.RegisterRequest) -> v1alpha2.Empty:
        one = register_request
        await self._register(Registration(one.version, one.endpoint, one.resource_name))
        return v1alpha2.Empty()


DIALECTS: Mapping[str, Dialect] = {
    "0.1": Dialect("deviceplugin", _allocate_0_1, _Alpha),
    "v1alpha2": Dialect("deviceplugin", _allocate_v1alpha2, _Alpha),
    "v1beta1": Dialect("v1beta1", _allocate_v1beta1, _Beta),
}
"""By the version string that Register accepts."""

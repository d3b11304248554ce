"""A device plugin for tests of simulated kubelets. It speaks through grpcio, because they speak through grpclib."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpgateway_simulator import Kubelet
from dpgateway_simulator.wire import deviceplugin as v1alpha2
from dpgateway_simulator.wire import v1beta1
from dpgateway_simulator.wire.deviceplugin import v0_1

X = "example.com/x"
ERAS = ("1.8", "1.9", "1.10", "1.12", "1.16", "1.19", "1.25", "1.34", "1.37")
UNKNOWN, UNIMPLEMENTED = grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED


class PluginRig:
    """One resource on one socket. `calls` has (method, ids) of each call. A method awaits its hook, which may raise."""

    def __init__(self, kubelet: Kubelet, endpoint: str = "x.sock", resource: str = X, **health: str) -> None:
        self.kubelet, self.endpoint, self.resource = kubelet, endpoint, resource
        self.api = kubelet.behaviour.api
        self.health = health or {"d0": "Healthy", "d1": "Healthy"}
        self.nodes: dict[str, list[int]] = {}
        self.options = {"pre_start_required": True, "get_preferred_allocation_available": False}
        self.empty = False
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.hooks: dict[str, Callable[[tuple[str, ...]], Awaitable[None]]] = {}
        self.metadata: dict[str, str] = {}
        self.seconds: float | None = None  # until the deadline of the last GetDevicePluginOptions
        self.streams = Counter[str]()
        self._changed = asyncio.Event()
        self._ended, self._version = False, 0

    async def serve(self) -> "PluginRig":
        package = "v1beta1" if self.api == "v1beta1" else "deviceplugin"
        methods = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(self._options, bytes, bytes),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list, bytes, bytes),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate, bytes, bytes),
            "PreStartContainer": grpc.unary_unary_rpc_method_handler(self._pre_start, bytes, bytes),
            "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(self._prefer, bytes, bytes),
        }
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(f"{package}.DevicePlugin", methods)]
        )
        self._server.add_insecure_port(f"unix:{self.kubelet.directory}/{self.endpoint}")
        await self._server.start()
        return self

    async def register(self, version: str | None = None, api: str | None = None, resource: str | None = None) -> None:
        api = api or self.api
        package = "v1beta1" if api == "v1beta1" else "deviceplugin"
        request: Any = {
            "version": version or api,
            "endpoint": self.endpoint,
            "resource_name": resource or self.resource,
        }
        if api == "v1beta1":
            message: Any = v1beta1.RegisterRequest(**request, options=v1beta1.DevicePluginOptions(**self.options))
        else:
            message = v1alpha2.RegisterRequest(**request)
        # not the process's pool, which may still have a connection to the kubelet before this one
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{self.kubelet.directory}/kubelet.sock", own) as channel:
            await channel.unary_unary(f"/{package}.Registration/Register")(bytes(message), timeout=20)

    async def start(self) -> "PluginRig":
        """Serves, registers, and waits until its list is in."""
        since = len(self.kubelet.events)
        await self.serve()
        await self.register()
        await self.kubelet.wait_for_event("list received", since, resource=self.resource, endpoint=self.endpoint)
        return self

    async def set(self, **health: str | None) -> None:
        """Changes devices' health, and waits until the kubelet has the list. None removes a device."""
        self.health = {one: state for one, state in (self.health | health).items() if state}
        since = len(self.kubelet.events)
        self._wake()
        await self.kubelet.wait_for_event("list received", since, endpoint=self.endpoint)

    async def stop(self) -> None:
        self._ended = True
        self._wake()
        await self._server.stop(0)

    def count(self, method: str) -> int:
        return [name for name, _ in self.calls].count(method)

    def asked(self, method: str = "Allocate") -> list[tuple[str, ...]]:
        return [ids for name, ids in self.calls if name == method]

    def _wake(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _note(self, method: str, ids: list[str], context: Any = None) -> None:
        self.calls.append((method, tuple(sorted(ids))))
        if context is not None:
            self.metadata = {key: str(value) for key, value in context.invocation_metadata()}
        if method in self.hooks:
            await self.hooks[method](tuple(sorted(ids)))

    async def _options(self, request: bytes, context: Any) -> bytes:
        self.seconds = context.time_remaining()
        await self._note("GetDevicePluginOptions", [])
        return bytes(v1beta1.DevicePluginOptions(**self.options))

    def message(self) -> bytes:
        devices = [v1beta1.Device(one, state) for one, state in self.health.items()]
        for device in devices:
            if device.id in self.nodes:
                device.topology = v1beta1.TopologyInfo([v1beta1.NumaNode(node) for node in self.nodes[device.id]])
        return bytes(v1beta1.ListAndWatchResponse(devices))

    async def _list(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await self._note("ListAndWatch", [], context)
        self.streams["opened"] += 1
        try:
            sent = -1
            while not self._ended:
                if sent != self._version:
                    sent = self._version
                    yield self.message()
                else:
                    await self._changed.wait()
        finally:
            self.streams["ended"] += 1

    async def _allocate(self, request: bytes, context: Any) -> bytes:
        if self.api != "v1beta1":
            ids = v1alpha2.AllocateRequest().parse(request).devices_i_ds
            await self._note("Allocate", ids, context)
            return _old_answer(self.api, ids)
        (one,) = v1beta1.AllocateRequest().parse(request).container_requests
        await self._note("Allocate", one.devices_ids, context)
        ids = sorted(one.devices_ids)
        answer = v1beta1.ContainerAllocateResponse(
            envs={"IDS": ",".join(ids)},
            devices=[v1beta1.DeviceSpec(f"/dev/{device}", "/dev/null", "rw") for device in ids],
            annotations={"example.com/a": "yes"},
            cdi_devices=[v1beta1.CdiDevice(f"example.com/x={device}") for device in ids],
        )
        return bytes(v1beta1.AllocateResponse([] if self.empty else [answer]))

    async def _pre_start(self, request: bytes, context: Any) -> bytes:
        await self._note("PreStartContainer", v1beta1.PreStartContainerRequest().parse(request).devices_ids)
        return b""

    async def _prefer(self, request: bytes, context: Any) -> bytes:
        (one,) = v1beta1.PreferredAllocationRequest().parse(request).container_requests
        await self._note("GetPreferredAllocation", one.available_device_i_ds)
        best = sorted(one.available_device_i_ds, reverse=True)[: one.allocation_size]
        return bytes(v1beta1.PreferredAllocationResponse([v1beta1.ContainerPreferredAllocationResponse(best)]))


def _old_answer(api: str, ids: list[str]) -> bytes:
    paths = {one: (f"/dev/{one}", "/dev/null", "rw") for one in sorted(ids)}
    if api == "0.1":
        specs = [
            v0_1.DeviceRuntimeSpec(one, {f"ID_{one}": one}, [], [v0_1.DeviceSpec(*path)]) for one, path in paths.items()
        ]
        return bytes(v0_1.AllocateResponse(specs))
    devices = [v1alpha2.DeviceSpec(*path) for path in paths.values()]
    return bytes(v1alpha2.AllocateResponse({"IDS": ",".join(sorted(ids))}, [], devices))


class Rig:
    """Makes kubelets and plugins, and ends them after the test."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory, self._stack = directory, stack

    async def kubelet(self, version: str, **how: Any) -> Kubelet:
        kubelet = Kubelet(version, self.directory, **how)
        self._stack.push_async_callback(kubelet.kill)
        await kubelet.start()
        return kubelet

    async def kubelet_again(self, before: Kubelet, version: str) -> Kubelet:
        """Starts another version on the same directory. It hasn't read its pods yet; container c of p1 runs."""
        kubelet = Kubelet(version, before.directory)
        self._stack.push_async_callback(kubelet.kill)
        await kubelet.start(sources_ready=False, running=["p1/c"])
        return kubelet

    def plugin(self, kubelet: Kubelet, endpoint: str = "x.sock", resource: str = X, **health: str) -> PluginRig:
        plugin = PluginRig(kubelet, endpoint, resource, **health)
        self._stack.push_async_callback(self._stop, plugin)
        return plugin

    async def both(self, version: str, **how: Any) -> tuple[Kubelet, PluginRig]:
        """A kubelet and a plugin of two devices that it knows."""
        kubelet = await self.kubelet(version, **how)
        return kubelet, await self.plugin(kubelet).start()

    @staticmethod
    async def _stop(plugin: PluginRig) -> None:
        if hasattr(plugin, "_server"):
            await plugin.stop()


async def refusal(call: Awaitable[None]) -> tuple[grpc.StatusCode, str | None]:
    """Code and text of an RPC that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()

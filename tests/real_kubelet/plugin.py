"""A tiny device plugin in any dialect, to see that a kubelet works; what a good plugin does it leaves to dpgateway."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from tests.real_kubelet.messages import messages

Call = tuple[str, list[str]]
Hook = Callable[[list[str]], Awaitable[None]]


def dialect_of(release: str) -> str:
    return {"1.8": "0.1", "1.9": "v1alpha2"}.get(release, "v1beta1")


class Plugin:
    """One resource on `directory`/`endpoint`.

    `calls` are (method, ids) in their order; a hook of a method is awaited in it and may raise. `devices` are
    {id: health}, `numa` says which nodes an id is on. An id gets its CDI device of `cdi`, or else the node `node`.
    What is in `again` is listed besides, whatever ids it has. `ended` counts the streams that ended, `seconds` are
    what the kubelet's deadline left to a method, None without one. The answer of a `silent` plugin to Allocate has
    nothing in it.
    """

    def __init__(
        self, dialect: str, resource: str, directory: Path, endpoint: str = "plugin.sock", *, pre_start: bool = True
    ) -> None:
        self.dialect, self.resource, self.directory, self.endpoint = dialect, resource, directory, endpoint
        self.package = "v1beta1" if dialect == "v1beta1" else "deviceplugin"
        self.options = {"pre_start_required": pre_start, "get_preferred_allocation_available": False}
        self.devices = {"d0": "Healthy", "d1": "Healthy"}
        self.again: list[tuple[str, str]] = []
        self.numa: dict[str, list[int]] = {}
        self.node, self.mount = "/dev/null", "/tmp"
        self.cdi: dict[str, str] = {}
        self.calls: list[Call] = []
        self.hooks: dict[str, Hook] = {}
        self.user_agent = ""
        self.ended, self.silent = 0, False
        self.seconds: dict[str, float | None] = {}
        self._m = messages(dialect)
        self._changed = asyncio.Condition()
        self._version, self._over = 0, False
        self._stream_ended = asyncio.Event()

    async def serve(self) -> Self:
        self._over = False
        self._server = grpc.aio.server()
        unary: dict[str, Any] = {"Allocate": self._allocate}
        if self.dialect == "v1beta1":
            unary |= {"PreStartContainer": self._pre_start, "GetPreferredAllocation": self._prefer}
        table = {name: self._unary(f"{self._request_of(name)}Request", method) for name, method in unary.items()}
        if self.dialect == "v1beta1":
            table["GetDevicePluginOptions"] = self._unary("Empty", self._get_options)
        table["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(self._list_and_watch, bytes, _encode)
        handler = grpc.method_handlers_generic_handler(f"{self.package}.DevicePlugin", table)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.directory}/{self.endpoint}")
        await self._server.start()
        return self

    async def register(self, *, version: str = "", resource: str = "") -> None:
        """Raises grpc.aio.AioRpcError when the kubelet refuses."""
        request = self._m["RegisterRequest"](
            version=version or self.dialect, endpoint=self.endpoint, resource_name=resource or self.resource
        )
        if self.dialect == "v1beta1":
            request.options.CopyFrom(self._m["DevicePluginOptions"](**self.options))
        # its own connection: the process's pool may still have one to the kubelet that was there before
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{self.directory}/kubelet.sock", own) as channel:
            await channel.unary_unary(f"/{self.package}.Registration/Register")(_encode(request), timeout=30)

    async def stop(self) -> None:
        """Its streams end before the server does: of a connection that says goodbye while one is open, the client of
        kubelets 1.8 and 1.9 sometimes never sees the end.
        """
        async with self._changed:
            self._over = True
            self._changed.notify_all()
        with contextlib.suppress(TimeoutError):  # a kubelet that is paused
            async with asyncio.timeout(2):
                while self.ended < len(self.of("ListAndWatch")):
                    self._stream_ended.clear()
                    await self._stream_ended.wait()
        await self._server.stop(0)

    async def set(self, **health: str | None) -> None:
        """Changes devices, None to take one away, and sends the whole list."""
        self.devices = {name: value for name, value in (self.devices | health).items() if value is not None}
        async with self._changed:
            self._version += 1
            self._changed.notify_all()

    def of(self, method: str) -> list[list[str]]:
        """The ids of every call of a method."""
        return [ids for name, ids in self.calls if name == method]

    async def wait_for(self, method: str, count: int = 1, timeout: float = 30) -> None:  # noqa: ASYNC109
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: len(self.of(method)) >= count)

    def _request_of(self, method: str) -> str:
        return {"GetPreferredAllocation": "PreferredAllocation"}.get(method, method)

    def _unary(self, request: str, method: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(method, self._m[request].FromString, _encode)

    async def _note(self, method: str, ids: Iterable[str] = ()) -> list[str]:
        found = sorted(ids)
        async with self._changed:
            self.calls.append((method, found))
            self._changed.notify_all()
        if method in self.hooks:
            await self.hooks[method](found)
        return found

    async def _get_options(self, _request: Any, context: Any) -> Any:
        self.seconds["GetDevicePluginOptions"] = context.time_remaining()
        await self._note("GetDevicePluginOptions")
        return self._m["DevicePluginOptions"](**self.options)

    async def _list_and_watch(self, _request: bytes, context: Any) -> AsyncIterator[Any]:
        self.user_agent = dict(context.invocation_metadata()).get("user-agent", "")
        context.add_done_callback(self._end)
        await self._note("ListAndWatch")
        while not self._over:
            sent = self._version
            listed = [*self.devices.items(), *self.again]
            yield self._m["ListAndWatchResponse"](devices=[self._device(*one) for one in listed])
            async with self._changed:
                await self._changed.wait_for(lambda: self._over or self._version != sent)  # noqa: B023 - runs before it changes

    def _end(self, _context: Any) -> None:
        self.ended += 1
        self._stream_ended.set()

    def _device(self, name: str, health: str) -> Any:
        device = self._m["Device"](ID=name, health=health)
        for number in self.numa.get(name, ()):
            device.topology.nodes.add(ID=number)
        return device

    async def _allocate(self, request: Any, context: Any) -> Any:
        self.seconds["Allocate"] = context.time_remaining()
        answer = self._m["AllocateResponse"]()
        if self.dialect == "v1beta1":
            for container in request.container_requests:
                ids = await self._note("Allocate", container.devices_ids)
                if not self.silent:
                    self._grant_v1beta1(answer.container_responses.add(), ids)
            return answer
        ids = await self._note("Allocate", request.devices_ids)
        if self.silent:
            return answer
        if self.dialect == "v1alpha2":
            self._grant(answer, ids)
        else:
            for one in ids:
                self._grant(answer.spec.add(ID=one), [one])
        return answer

    def _grant_v1beta1(self, answer: Any, ids: list[str]) -> None:
        self._grant(answer, ids)
        answer.annotations.add(key="devices.example.com", value=",".join(ids))
        for one in ids:
            if one in self.cdi:
                answer.cdi_devices.add(name=self.cdi[one])

    def _grant(self, answer: Any, ids: list[str]) -> None:
        suffix = f"_{ids[0]}" if self.dialect == "0.1" else ""
        answer.envs.add(key=f"DEVICES{suffix}", value=",".join(ids))
        answer.mounts.add(container_path=f"/mnt/devices{suffix}", host_path=self.mount, read_only=True)
        for one in ids:
            if one not in self.cdi:
                answer.devices.add(container_path=f"/dev/example-{one}", host_path=self.node, permissions="rw")

    async def _pre_start(self, request: Any, context: Any) -> Any:
        self.seconds["PreStartContainer"] = context.time_remaining()
        await self._note("PreStartContainer", request.devices_ids)
        return self._m["PreStartContainerResponse"]()

    async def _prefer(self, request: Any, _context: Any) -> Any:
        answer = self._m["PreferredAllocationResponse"]()
        for container in request.container_requests:
            available = await self._note("GetPreferredAllocation", container.available)
            answer.container_responses.add(devices_ids=available[-container.size :])
        return answer


def _encode(message: Any) -> bytes:
    return bytes(message.SerializeToString())

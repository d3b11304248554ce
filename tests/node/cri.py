"""A container runtime as a test plays it, on a real socket."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest

from dpgateway_simulator.wire.runtime import v1

READY, STOPPED = v1.PodSandboxState.SANDBOX_READY, v1.PodSandboxState.SANDBOX_NOTREADY
CREATED, RUNNING = v1.ContainerState.CONTAINER_CREATED, v1.ContainerState.CONTAINER_RUNNING
EXITED, UNKNOWN = v1.ContainerState.CONTAINER_EXITED, v1.ContainerState.CONTAINER_UNKNOWN

POD = "io.kubernetes.pod.uid"

T = TypeVar("T")


async def in_time(ask: Callable[[], Awaitable[T]], caplog: pytest.LogCaptureFixture) -> T:
    """What ``ask`` returns. A runtime has a second to answer, in which a machine may stall, but not each time."""
    caplog.set_level(logging.DEBUG, "dpgateway")
    for _ in range(4):
        caplog.clear()
        found = await ask()
        if "Deadline Exceeded" not in caplog.text:
            return found
    return await ask()


def _chosen(selector: Mapping[str, str], pods: Iterable[str]) -> list[str]:
    """The pods that a label selector chooses."""
    return [uid for uid in pods if selector.items() <= {POD: uid}.items()]


class Cri:
    """It has these sandboxes and containers, by the uid of their pod."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.sandboxes: dict[str, list[v1.PodSandboxState]] = {}
        self.containers: dict[str, list[v1.ContainerState]] = {}
        self.static: set[str] = set()
        """The pods that aren't the API server's."""
        self.fails: set[str] = set()
        """The methods that it refuses."""
        self.asked: list[str] = []
        self.listeners: list[asyncio.Queue[v1.ContainerEventResponse]] = []

    def says(self, uid: str, state: int = STOPPED) -> None:
        """An event of the pod's sandbox."""
        status = v1.PodSandboxStatus(v1.PodSandboxMetadata(uid), v1.PodSandboxState(state))
        for listener in self.listeners:
            listener.put_nowait(v1.ContainerEventResponse(status))

    async def start(self) -> None:
        rows = {
            "ListPodSandbox": grpc.unary_unary_rpc_method_handler(self._sandboxes),
            "ListContainers": grpc.unary_unary_rpc_method_handler(self._containers),
            "GetContainerEvents": grpc.unary_stream_rpc_method_handler(self._events),
        }
        self._server = grpc.aio.server()
        handlers = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", rows)
        self._server.add_generic_rpc_handlers((handlers,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def _sandboxes(self, raw: bytes, context: Any) -> bytes:
        await self._note("ListPodSandbox", context)
        asked = v1.ListPodSandboxRequest().parse(raw).filter.label_selector
        found = []
        for uid in _chosen(asked, self.sandboxes):
            annotations = {"kubernetes.io/config.source": "file" if uid in self.static else "api"}
            found += [v1.PodSandbox(state, {POD: uid}, annotations) for state in self.sandboxes[uid]]
        return bytes(v1.ListPodSandboxResponse(found))

    async def _containers(self, raw: bytes, context: Any) -> bytes:
        await self._note("ListContainers", context)
        asked = v1.ListContainersRequest().parse(raw).filter.label_selector
        found = [
            v1.Container(state, {POD: uid}) for uid in _chosen(asked, self.containers) for state in self.containers[uid]
        ]
        return bytes(v1.ListContainersResponse(found))

    async def _events(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        await self._note("GetContainerEvents", context)
        events: asyncio.Queue[v1.ContainerEventResponse] = asyncio.Queue()
        self.listeners.append(events)
        while True:
            yield bytes(await events.get())

    async def _note(self, method: str, context: Any) -> None:
        self.asked.append(method)
        if method in self.fails:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no {method}")

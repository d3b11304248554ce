"""A kubelet's PodResources API as a test plays it: any answer, on a real socket."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

Answer = Callable[[Any], Awaitable[bytes]]


def encoded(*pods: Any, more: bytes = b"") -> bytes:
    """A ListPodResourcesResponse. Each pod is (namespace, name, {container: [(resource, ids), ...]}); ``more`` is put
    at the end of every message.
    """
    return b"".join(field(1, _pod(pod, more)) for pod in pods) + more


def _pod(pod: Any, more: bytes) -> bytes:
    namespace, name, containers = pod
    inner = b"".join(field(3, _container(key, devices, more)) for key, devices in containers.items())
    return field(1, name.encode()) + field(2, namespace.encode()) + inner + more


def _container(name: str, devices: Any, more: bytes) -> bytes:
    inner = b""
    for resource, ids in devices:
        told = field(1, resource.encode()) + b"".join(field(2, id_.encode()) for id_ in ids)
        inner += field(2, told + more)
    return field(1, name.encode()) + inner + more


def field(number: int, value: bytes) -> bytes:
    """Length-delimited, as https://protobuf.dev/programming-guides/encoding says."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


async def empty(_: Any) -> bytes:
    return b""


def refusing(code: grpc.StatusCode, text: str) -> Answer:
    async def answer(context: Any) -> bytes:
        await context.abort(code, text)
        return b""

    return answer


class Lister(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves the API's versions that ``answers`` names."""

    def __init__(self, socket: Path, **answers: Answer | bytes) -> None:
        self.socket, self.answers = socket, answers
        self.calls: list[str] = []
        """The versions that were asked."""
        self._server: Any = None

    async def start(self) -> None:
        self.socket.parent.mkdir(exist_ok=True)
        self._server = grpc.aio.server([], options=[("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def service(self, details: Any) -> Any:
        version, _, method = details.method.removeprefix("/").partition(".PodResourcesLister/")
        self.calls.append(version)
        if version not in self.answers or method != "List":
            return None  # gRPC answers UNIMPLEMENTED

        async def answer(_: bytes, context: Any) -> bytes:
            given = self.answers[version]
            return given if isinstance(given, bytes) else await given(context)

        return grpc.unary_unary_rpc_method_handler(answer)

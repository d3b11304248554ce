"""A gRPC server of one resource, with every API on it, and reflection for people with grpcurl."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import grpc
import grpc.aio

from dpgateway.deviceplugin.api import LARGEST, POOL
from dpgateway.kit import unix
from dpgateway.kit.tasks import uncancelled

_SERVICE = "grpc.reflection.v1alpha.ServerReflection"
_OPTIONS = [
    ("grpc.so_reuseport", 0),
    # GetPreferredAllocation, for one container (callGetPreferredAllocationIfAvailable, pkg/kubelet/cm/devicemanager),
    # names each free id at most twice, as available and as must-include; an id takes fewer bytes there than in a list
    ("grpc.max_receive_message_length", 2 * LARGEST),
    ("grpc.max_send_message_length", -1),
]


class Server:
    """Holds its address until it has stopped."""

    def __init__(self, path: Path, handlers: Sequence[grpc.ServiceRpcHandler]) -> None:
        self._address = unix.Address(path)
        self.path = self._address.path
        """The path as it was bound."""
        self._grpc = grpc.aio.server(options=_OPTIONS)
        services = tuple([handler.service_name() for handler in handlers])
        self._grpc.add_generic_rpc_handlers((*handlers, _reflection(services)))

    async def start(self) -> None:
        """Raises OSError or RuntimeError if the path can't be bound."""
        try:
            self._grpc.add_insecure_port(str(self._address))
        except RuntimeError:
            with socket.socket(socket.AF_UNIX) as plain:
                plain.bind(self.path)  # says why, which gRPC doesn't
            raise
        await uncancelled(self._grpc.start())  # grpcio 1.85: a server whose start was cancelled can't be stopped

    async def stop(self, grace: float | None) -> None:
        """``grace``: seconds for running calls to end. gRPC then unlinks the path that it bound, even if another file
        is there by then.
        """
        try:
            await self._grpc.stop(grace)
        finally:
            self._address.close()


class _Reflection(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc comes without types
    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = (*services, _SERVICE)
        self._loaded: grpc.GenericRpcHandler | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of this service's calls; None for others."""
        if not handler_call_details.method.startswith(f"/{_SERVICE}/"):
            return None
        if self._loaded is None:
            from grpc_reflection.v1alpha import reflection, reflection_pb2  # noqa: PLC0415  few nodes ever need it

            servicer = reflection.aio.ReflectionServicer(self._services, pool=POOL)
            method = grpc.stream_stream_rpc_method_handler(
                servicer.ServerReflectionInfo,
                request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
                response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
            )
            self._loaded = grpc.method_handlers_generic_handler(_SERVICE, {"ServerReflectionInfo": method})
        return self._loaded.service(handler_call_details)


_reflection = cache(_Reflection)
"""One handler is shared by all servers with the same services."""

"""gRPC reflection, for people with grpcurl. Loaded at its first call, because few nodes ever need it."""

from __future__ import annotations

from functools import cache

import grpc

from dpgateway.deviceplugin.api import POOL

_SERVICE = "grpc.reflection.v1alpha.ServerReflection"


@cache
def reflection(services: tuple[str, ...]) -> grpc.GenericRpcHandler:
    """One handler, shared by all servers with these services."""
    return _Reflection(services)


class _Reflection(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc comes without types
    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = (*services, _SERVICE)
        self._loaded: grpc.GenericRpcHandler | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of this service's calls; None for others."""
        if not handler_call_details.method.startswith(f"/{_SERVICE}/"):
            return None
        self._loaded = self._loaded or self._load()
        return self._loaded.service(handler_call_details)

    def _load(self) -> grpc.GenericRpcHandler:
        from grpc_reflection.v1alpha import reflection, reflection_pb2  # noqa: PLC0415  see above

        servicer = reflection.aio.ReflectionServicer(self._services, pool=POOL)
        method = grpc.stream_stream_rpc_method_handler(
            servicer.ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(_SERVICE, {"ServerReflectionInfo": method})

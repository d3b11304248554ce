"""A container runtime that knows CDI, and does nothing but say so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpgateway_simulator.wire.runtime import v1


@asynccontextmanager
async def containerd(socket: Path) -> AsyncIterator[Path]:
    """Serves on this socket."""

    async def version(request: Any, context: Any) -> bytes:
        return bytes(v1.VersionResponse(runtime_name="containerd", runtime_version="v2.1.4"))

    async def status(request: Any, context: Any) -> bytes:
        return bytes(v1.StatusResponse(info={"config": '{"enableCDI": true}'}))

    server = grpc.aio.server()
    answers = {"Version": version, "Status": status}
    rows = {name: grpc.unary_unary_rpc_method_handler(answer) for name, answer in answers.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", rows),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield socket
    finally:
        await server.stop(None)

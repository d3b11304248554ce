"""A container runtime that does nothing but say whether it knows CDI."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpgateway_simulator.wire.runtime import v1


@asynccontextmanager
async def containerd(socket: Path, release: str = "v2.1.4", *, cdi: bool = True) -> AsyncIterator[Path]:
    """Serves on this socket. ``cdi``: whether CDI is switched on."""

    async def version(request: Any, context: Any) -> bytes:
        return bytes(v1.VersionResponse(runtime_name="containerd", runtime_version=release))

    async def status(request: Any, context: Any) -> bytes:
        return bytes(v1.StatusResponse(info={"config": json.dumps({"enableCDI": cdi})}))

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

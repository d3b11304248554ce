"""A gRPC server of one resource."""

import asyncio

import grpc
import pytest

from dpgateway.deviceplugin.server.serving import Server


async def test_a_start_that_is_cancelled_can_be_stopped(short_path):
    """A reload may come at any moment: a resource that is just being opened is stopped then."""
    server = Server(short_path / "s.sock", [grpc.method_handlers_generic_handler("s.S", {})])
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await server.stop(None)

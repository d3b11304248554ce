"""What goes over the wire to a plugin, seen by a server that is neither grpcio nor grpclib."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from dpgateway_simulator import behaviour
from dpgateway_simulator.kubelet.errors import PluginError
from dpgateway_simulator.kubelet.plugin import PluginClient
from dpgateway_simulator.wire.device_list import Device
from dpgateway_simulator.wire.sockets import bound


@contextlib.asynccontextmanager
async def first_request(path: Path) -> AsyncIterator[asyncio.Future[dict[str, str]]]:
    """The headers of the first request that comes to a socket. Within the block its client ends the connection."""
    headers, ended = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        with contextlib.suppress(ConnectionError):  # it has gone while it was written to
            while data := await reader.read(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        headers.set_result(dict(event.headers))
                writer.write(connection.data_to_send())
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield headers
        async with asyncio.timeout(60):
            await ended.wait()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("version", "agent", "path_as_authority"),
    [("1.8", "grpc-go/1.3.0", True), ("1.25", "grpc-go/1.47.0", True), ("1.26", "grpc-go/1.49.0", False)],
)
async def test_a_request_looks_like_the_kubelets(
    tmp_path: Path, version: str, agent: str, path_as_authority: bool
) -> None:
    path = tmp_path / "x.sock"
    async with first_request(path) as headers:
        plugin = PluginClient(behaviour(version), "example.com/x", path, "x.sock")
        calling = asyncio.create_task(plugin.allocate(["d0"]))
        seen = await headers
        plugin.close()
        await asyncio.wait({calling})
    assert calling.exception()
    assert seen["user-agent"] == agent
    assert seen[":authority"] == (str(path) if path_as_authority else "localhost")
    assert seen["te"] == "trailers"
    assert "grpc-timeout" not in seen


async def test_pre_start_container_has_30_seconds(tmp_path: Path) -> None:
    async with first_request(tmp_path / "x.sock") as headers:
        plugin = PluginClient(behaviour("1.37"), "example.com/x", tmp_path / "x.sock", "x.sock")
        calling = asyncio.create_task(plugin.pre_start(["d0"]))
        timeout = (await headers)["grpc-timeout"]
        plugin.close()
        await asyncio.wait({calling})
    assert calling.exception()
    number, unit = int(timeout[:-1]), timeout[-1]
    assert 15 < number * {"S": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}[unit] <= 30


async def test_plugin_ends_after_connect(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    listening = bound(path)
    listening.listen()
    plugin = PluginClient(behaviour("1.37"), "example.com/x", path, "x.sock")

    async def first() -> list[tuple[Device, ...]]:
        return [devices async for devices in plugin.lists()]

    asking = asyncio.ensure_future(first())  # connects when it runs, and speaks a turn later
    asyncio.get_running_loop().call_soon(listening.close)
    with pytest.raises(PluginError, match="the plugin closed the connection"):
        await asking
    plugin.close()

"""How the simulator's gRPC servers begin and end."""

import asyncio
import contextlib
import gc
import socket
import warnings

import pytest

from dpgateway_simulator.wire import sockets
from dpgateway_simulator.wire.server import GoServer


@pytest.mark.parametrize("turns", range(6))
async def test_accepting_connection_ends(tmp_path, turns):
    """``turns`` of the event loop after it came."""
    path = tmp_path / "kubelet.sock"
    server = GoServer([])
    await server.listen(sockets.bound(path))
    with socket.socket(socket.AF_UNIX) as client, warnings.catch_warnings(record=True) as leaked:
        client.setblocking(False)
        client.connect(str(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        server.end()
        with contextlib.suppress(ConnectionResetError):  # one that wasn't accepted yet
            while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 4096), 60):
                pass  # an HTTP/2 server speaks first
        gc.collect()
    assert leaked == []
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(str(path))

"""What a kubelet's call looks like before any gRPC library has taken it apart."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived


@asynccontextmanager
async def first_headers(path: Path) -> AsyncIterator[asyncio.Future[dict[str, str]]]:
    """Listens on a unix socket; the headers of the first HTTP/2 request. It is never answered."""
    found: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        with contextlib.suppress(ConnectionResetError):  # the kubelet ends
            while data := await reader.read(1 << 16):
                for event in connection.receive_data(data):
                    if isinstance(event, RequestReceived) and not found.done():
                        found.set_result({str(name): str(value) for name, value in event.headers})
                writer.write(connection.data_to_send())
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield found
    finally:
        server.close()

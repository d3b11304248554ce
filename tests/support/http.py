"""A client that says exactly what a test wants it to say."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def read_reply(reader: asyncio.StreamReader, *, body: bool = True) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
    length = int(headers.get("content-length", 0)) if body else 0
    return Reply(int(head[0].split()[1]), headers, await reader.readexactly(length))


async def ask(port: int, path: str, method: str = "GET", **headers: str) -> Reply:
    """The reply to one request on a connection of its own."""
    fields = {"host": f"127.0.0.1:{port}", "connection": "close", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write("\r\n".join(lines).encode())
            return await read_reply(reader, body=method != "HEAD")
        finally:
            writer.close()
            await writer.wait_closed()


async def cut(reader: asyncio.StreamReader) -> bytes:
    """Reads until the server has ended the connection."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""

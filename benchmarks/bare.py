"""The least code that does the gateway's work: grpc.aio handlers that have their bytes ready, on the same event loop.

A process of its own: ``python -m benchmarks.bare DIRECTORY RESOURCES DEVICES [--answer FILE] [--threaded] [--naive]
[--commands FIFO --stamps FIFO]``. It serves each resource on a socket, and registers all of them with each kubelet that
appears.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop
from asyncinotify import Inotify, Mask

from benchmarks import messages
from benchmarks.commands import follow
from dpgateway import Device, Health

FOLDER = "bare"
RESOURCE = "bare.example/r{}"
_RETRY = 0.01
"""Seconds between attempts to register: kubelet.sock exists before the kubelet listens on it."""


class Bare:
    """The plugins of all resources. Each lists the same devices."""

    def __init__(
        self, directory: Path, devices: int, answer: bytes, *, threaded: bool = False, naive: bool = False
    ) -> None:
        """``threaded``: a thread makes the answer, as for a driver that may block. ``naive``: each list is made anew,
        from one value per device.
        """
        self._directory, self._answer = directory, answer
        self._thread = ThreadPoolExecutor(1) if threaded else None
        self._folder = directory / FOLDER
        self._naive = naive
        self._ids = ids = [f"device-{number}" for number in range(devices)]
        self._lists = [messages.device_list(ids), messages.device_list(ids, ids[0] if ids else "")]
        self._list = self._lists[0]
        self._changed = asyncio.Event()
        self._numbers = itertools.count()

    def flip(self, index: int) -> None:
        """Sends the other list from now on. ``index`` matters to a naive list only; the others' bytes are ready."""
        self._lists.reverse()
        self._list = self._made(index) if self._naive else self._lists[0]
        self._changed.set()
        self._changed = asyncio.Event()

    def _made(self, index: int) -> bytes:
        devices = [
            Device(id_, Health.unhealthy("flipped") if i == index else Health.healthy())
            for i, id_ in enumerate(self._ids)
        ]
        return b"".join(messages.device(one.id, healthy=one.health.ok) for one in devices)

    async def serve(self, resources: int) -> list[grpc.aio.Server]:
        self._folder.mkdir(exist_ok=True)
        handler = grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._watch),
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(self._options),
            },
        )
        servers = []
        for number in range(resources):
            server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
            server.add_generic_rpc_handlers((handler,))
            server.add_insecure_port(f"unix:{self._folder / f'{number}.sock'}")
            await server.start()
            servers.append(server)
        return servers

    async def _allocate(self, raw: bytes, context: object) -> bytes:
        if self._thread is None:
            return self._answer
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._answer)

    async def _options(self, raw: bytes, context: object) -> bytes:
        return b""

    async def _watch(self, raw: bytes, context: object) -> AsyncIterator[bytes]:
        while True:
            changed = self._changed
            yield self._list
            await changed.wait()

    async def register(self, resources: int) -> None:
        """Registers all resources with each kubelet that appears."""
        with Inotify() as inotify:
            inotify.add_watch(self._directory, Mask.CREATE)
            if (self._directory / "kubelet.sock").exists():
                await self._register_all(resources)
            async for event in inotify:
                if str(event.name) == "kubelet.sock":
                    await self._register_all(resources)

    async def _register_all(self, resources: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        while True:
            async with grpc.aio.insecure_channel(
                f"unix:{self._directory / 'kubelet.sock'}", options=options
            ) as channel:
                call: Any = channel.unary_unary(messages.REGISTER)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await asyncio.gather(*(call(self._request(number)) for number in range(resources)))
                    return
            await asyncio.sleep(_RETRY)

    def _request(self, number: int) -> bytes:
        """The request, with a new link to the socket for each registration, as in the gateway."""
        link = self._folder / f"{number}-{next(self._numbers)}.sock"
        os.link(self._folder / f"{number}.sock", link)
        return messages.register_request(f"{FOLDER}/{link.name}", RESOURCE.format(number))


async def run(options: argparse.Namespace) -> None:
    answer = options.answer.read_bytes() if options.answer else b""
    bare = Bare(options.directory, options.devices, answer, threaded=options.threaded, naive=options.naive)
    servers = await bare.serve(options.resources)
    if options.commands:
        loop = asyncio.get_running_loop()

        # As in the gateway's driver: the time is taken just before the event loop is told.
        def flip(index: int) -> int:
            stamp = time.monotonic_ns()
            loop.call_soon_threadsafe(bare.flip, index)
            return stamp

        follow(options.commands, options.stamps, flip)
    await bare.register(options.resources)
    for server in servers:
        await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("resources", type=int)
    parser.add_argument("devices", type=int)
    parser.add_argument("--answer", type=Path)
    parser.add_argument("--threaded", action="store_true")
    parser.add_argument("--naive", action="store_true")
    parser.add_argument("--commands", type=Path)
    parser.add_argument("--stamps", type=Path)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

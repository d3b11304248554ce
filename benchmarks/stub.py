"""A stub of a kubelet, the two ends of the wire only: fast enough to measure microseconds."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from benchmarks import messages

_DUE = 30.0
"""Seconds for any wait, before the run fails."""
_OPTIONS = [
    ("grpc.primary_user_agent", "grpc-go/1.81.1"),  # the gateway recognizes a kubelet by its user agent
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
]


class Stub:
    """A sequence of kubelets in one directory. Its methods block: nothing else runs at the same time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket = directory / "kubelet.sock"
        self._registered: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._server: grpc.Server | None = None
        self._plugins: list[Plugin] = []

    def start(self) -> None:
        """Serves kubelet.sock."""
        # A queue for each kubelet: a late registration with the last one doesn't count for this one.
        self._socket.unlink(missing_ok=True)
        registered: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._registered = registered

        def register(raw: bytes, context: object) -> bytes:
            registered.put(messages.read_register(raw))
            return b""

        handler = grpc.unary_unary_rpc_method_handler(register)
        server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),)
        )
        server.add_insecure_port(f"unix:{self._socket}")
        server.start()
        self._server = server

    def plugins(self, count: int) -> Sequence[Plugin]:
        """The next ``count`` plugins to register, without open streams."""
        end = time.monotonic() + _DUE
        named = [self._registered.get(timeout=end - time.monotonic()) for _ in range(count)]
        found = [Plugin(self._directory / endpoint) for _, endpoint in sorted(named)]
        self._plugins += found
        return found

    def stop(self) -> None:
        """Ends the connections and leaves the socket's file behind, as a killed kubelet does."""
        for plugin in self._plugins:
            plugin.close()
        self._plugins.clear()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None


class Plugin:
    """A device plugin, seen from the kubelet: raw bytes in and out."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._allocate = self._channel.unary_unary(messages.ALLOCATE)
        self._watch: Any = self._channel.unary_stream(messages.WATCH)
        self._lists: list[Lists] = []
        """Keeps every stream open: a collected one would end, which the gateway takes for the kubelet's end."""

    def connect(self) -> None:
        """Connects; returns once the connection is ready."""
        grpc.channel_ready_future(self._channel).result(_DUE)

    def allocate(self, request: bytes) -> bytes:
        answer: bytes = self._allocate(request, timeout=_DUE)
        return answer

    def lists(self) -> Lists:
        """Opens a stream, which stays open until its ``cancel`` or the plugin's ``close``."""
        self._lists.append(Lists(self._watch(b"")))
        return self._lists[-1]

    def close(self) -> None:
        self._channel.close()
        self._lists.clear()


class Lists(Iterator[bytes]):
    """One ListAndWatch stream, an iterator over encoded lists."""

    def __init__(self, call: Any) -> None:  # noqa: ANN401  grpc comes without types
        self._call = call

    def __next__(self) -> bytes:
        message: bytes = next(self._call)
        return message

    def cancel(self) -> None:
        """Cancels the stream and waits for its end."""
        self._call.cancel()
        with contextlib.suppress(grpc.RpcError):
            for _ in self._call:
                pass

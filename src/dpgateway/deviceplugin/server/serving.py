"""A gRPC server of one resource, with every API on it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import grpc
import grpc.aio

from dpgateway.deviceplugin.api import LARGEST
from dpgateway.deviceplugin.server.reflecting import reflection
from dpgateway.kit import unix

_OPTIONS = [
    ("grpc.so_reuseport", 0),
    # GetPreferredAllocation, for one container (callGetPreferredAllocationIfAvailable, pkg/kubelet/cm/devicemanager),
    # names each free id at most twice, as available and as must-include; an id takes fewer bytes there than in a list
    ("grpc.max_receive_message_length", 2 * LARGEST),
    ("grpc.max_send_message_length", -1),
]


class Server:
    """Holds its address until it has stopped."""

    def __init__(self, path: Path, handlers: Sequence[grpc.ServiceRpcHandler]) -> None:
        self._address = unix.Address(path)
        self.path = self._address.path
        """The path as it was bound."""
        self._grpc = grpc.aio.server(options=_OPTIONS)
        services = tuple([handler.service_name() for handler in handlers])
        self._grpc.add_generic_rpc_handlers((*handlers, reflection(services)))

    async def start(self) -> None:
        """Raises OSError or RuntimeError if the path can't be bound."""
        try:
            self._grpc.add_insecure_port(str(self._address))
        except RuntimeError:
            with socket.socket(socket.AF_UNIX) as plain:
                plain.bind(self.path)  # says why, which gRPC doesn't
            raise
        await self._grpc.start()

    async def stop(self, grace: float | None) -> None:
        """``grace``: seconds for running calls to end. gRPC then unlinks the path that it bound, even if another file
        is there by then.
        """
        try:
            await self._grpc.stop(grace)
        finally:
            self._address.close()

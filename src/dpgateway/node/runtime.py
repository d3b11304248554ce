"""Asks the container runtime who it is: Version, of the Container Runtime Interface.

From that follows whether it does something with the names of CDI devices, or drops them in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpgateway.node.wire import cri_pb2 as wire
from dpgateway.process import unix
from dpgateway.process.log import bind

_USUAL = "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"
SOCKETS = tuple(map(Path, _USUAL))
"""Where runtimes serve, unless they are told otherwise."""
DEADLINE = 1.0
"""Seconds; a container waits for the answer."""

_KNOWS_CDI = {"containerd": (2, 0), "cri-o": (1, 28)}
"""From when on names that come over CRI count without being turned on (containerd #9621, cri-o #6944)."""
_IGNORES_CDI = {"containerd": (1, 7), "cri-o": (1, 23)}
"""Before these nothing knows CDI."""
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
]

_log = bind(__name__)


def knows_cdi(name: str, version: str) -> bool | None:
    """Whether this runtime passes CDI devices to containers by their names; None if that can't be told."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None or name not in _KNOWS_CDI:
        return None
    release = int(found[1]), int(found[2])
    return True if release >= _KNOWS_CDI[name] else False if release < _IGNORES_CDI[name] else None


class Said(NamedTuple):
    """What a runtime says of itself."""

    name: str
    version: str


class Runtime:
    """Used from the event loop."""

    def __init__(self, socket: Path | None, usual: Sequence[Path] = SOCKETS) -> None:
        """Without a ``socket`` the runtime is the one that serves where runtimes usually do, if it is the only one."""
        self._candidates: Sequence[Path] = usual if socket is None else (socket,)
        self._known: tuple[object, Said] | None = None

    async def knows_cdi(self) -> bool | None:
        """Whether it passes CDI devices on by their names; None if that can't be told."""
        said = await self.said()
        return None if said is None else knows_cdi(*said)

    async def said(self) -> Said | None:
        """Asked once for each life of the runtime, because a runtime makes its socket when it starts. None if there
        isn't one alone, or it doesn't say who it is.
        """
        there = [(one, which) for one in self._candidates if (which := _which(one)) is not None]
        if len(there) != 1:
            return None
        if self._known is None or self._known[0] != there[0]:
            said = await self._version(there[0][0])
            if not said.name:
                return None
            word = {True: "knows", False: "doesn't know", None: "may know"}[knows_cdi(*said)]
            _log.info("the container runtime %s %s %s CDI", *said, word)
            self._known = there[0], said
        return self._known[1]

    async def _version(self, socket: Path) -> Said:
        """Empty if it doesn't say it."""
        request = wire.VersionRequest(version="v1").SerializeToString()
        try:
            address = unix.Address(socket)
            try:
                async with grpc.aio.insecure_channel(str(address), options=_OPTIONS) as channel:
                    raw = await channel.unary_unary("/runtime.v1.RuntimeService/Version")(request, timeout=DEADLINE)
            finally:
                address.close()
            answer = wire.VersionResponse.FromString(raw)
        except (grpc.aio.AioRpcError, DecodeError, OSError) as error:
            told = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
            _log.debug("the container runtime on %s doesn't say who it is: %s", socket, told)
            return Said("", "")
        return Said(answer.runtime_name, answer.runtime_version)


def _which(socket: Path) -> tuple[int, ...] | None:
    try:
        found = socket.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns

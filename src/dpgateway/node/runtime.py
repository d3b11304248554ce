"""Asks the container runtime who and how it is: Version and Status, of the Container Runtime Interface.

From these follows whether it does something with the names of CDI devices, or drops them in silence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from dpgateway.kit.channel import Channel
from dpgateway.kit.log import bind
from dpgateway.node.wire import cri_pb2 as wire

_USUAL = "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"
SOCKETS = tuple(map(Path, _USUAL))
"""Where runtimes serve, unless they are told otherwise."""
SERVICE = "/runtime.v1.RuntimeService"
DEADLINE = 1.0
"""Seconds; a container waits for the answer."""

_KNOWS_CDI = {"containerd": (2, 0, 0), "cri-o": (1, 28, 0)}
"""From when on names that come over CRI count without being turned on (containerd #9621, cri-o #6944)."""
_IGNORES_CDI = {"containerd": (1, 7, 2), "cri-o": (1, 23, 0)}
"""Before these nothing knows names that come over CRI: containerd 1.7.0 and 1.7.1 know only those in annotations."""

_log = bind(__name__)

M = TypeVar("M", bound=Message)


def knows_cdi(name: str, version: str, enabled: bool | None = None) -> bool | None:
    """Whether this runtime passes CDI devices to containers by their names; None if that can't be told.

    ``enabled``: what its configuration says; None if that isn't known.
    """
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None or name not in _KNOWS_CDI:
        return None
    release = int(found[1]), int(found[2]), int(found[3] or 0)
    if release < _IGNORES_CDI[name]:
        return False
    return enabled if enabled is not None else True if release >= _KNOWS_CDI[name] else None


def enables_cdi(info: Mapping[str, str]) -> bool | None:
    """What a runtime's configuration says, as Status tells it; None if it says nothing.

    containerd tells all of it as JSON, since 1.7 with ``enableCDI``, which is false by default in 1.7 and true in 2.0
    (Status in pkg/cri/server/status.go, PluginConfig in pkg/cri/config/config.go).
    """
    try:
        enabled = json.loads(info.get("config", ""))["enableCDI"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return enabled if isinstance(enabled, bool) else None


def spec_dirs(info: Mapping[str, str]) -> tuple[str, ...]:
    """Where a runtime reads CDI specs, as Status tells it (containerd, beside enableCDI); empty if it says nothing."""
    try:
        found = json.loads(info.get("config", ""))["cdiSpecDirs"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ()
    return tuple(found) if isinstance(found, list) and all(isinstance(one, str) for one in found) else ()


class CdiSupport(NamedTuple):
    """What a runtime does with the names of CDI devices."""

    by_name: bool | None
    """Whether it passes devices to containers by their names; None if that can't be told."""
    spec_dirs: tuple[str, ...] = ()
    """Where it reads specs; empty if it doesn't say that."""

    def of(self, *directories: Path) -> bool | None:
        """Whether it passes on names whose specs are in these directories."""
        return False if self.unread(*directories) else self.by_name

    def unread(self, *directories: Path) -> tuple[Path, ...]:
        """Those of the directories that it doesn't read."""
        read = {_plain(one) for one in self.spec_dirs}
        return tuple(one for one in directories if read and _plain(one) not in read)


def _plain(directory: str | Path) -> str:
    """/var/run is a link to /run on the host, but needn't be one in the gateway's container."""
    return re.sub(r"^/var/run/", "/run/", os.path.normpath(directory))


class Said(NamedTuple):
    """What a runtime says of itself."""

    name: str
    version: str
    cdi: CdiSupport = CdiSupport(None)


class Runtime:
    """Used from the event loop."""

    def __init__(self, socket: Path | None, usual: Sequence[Path] = SOCKETS) -> None:
        """Without a ``socket`` the runtime is the one that serves where runtimes usually do, if it is the only one."""
        self._candidates: Sequence[Path] = usual if socket is None else (socket,)
        self._known: tuple[object, Said] | None = None

    async def cdi(self) -> CdiSupport:
        """What it does with CDI devices, as far as that can be told."""
        said = await self.said()
        return said.cdi if said else CdiSupport(None)

    async def said(self) -> Said | None:
        """Asked once for each life of the runtime, because a runtime makes its socket when it starts. None if there
        isn't one alone, or it doesn't say who it is.
        """
        there = serving(self._candidates)
        if there is None:
            return None
        if self._known is None or self._known[0] != there:
            said = await _ask(there[0])
            if not said.name:
                return None
            word = {True: "knows", False: "doesn't know", None: "may know"}[said.cdi.by_name]
            where = f", and reads specs in {' and '.join(said.cdi.spec_dirs)}" if said.cdi.spec_dirs else ""
            _log.info("the container runtime %s %s %s CDI%s", said.name, said.version, word, where)
            self._known = there, said
        return self._known[1]


def serving(candidates: Sequence[Path]) -> tuple[Path, tuple[int, ...]] | None:
    """The one of these sockets that is there, and which it is; None if it isn't one alone."""
    there = [(one, which) for one in candidates if (which := _which(one)) is not None]
    return there[0] if len(there) == 1 else None


async def _ask(socket: Path) -> Said:
    """Empty if it doesn't say it."""
    version = await _called(socket, "Version", wire.VersionRequest(version="v1"), wire.VersionResponse)
    if not version.runtime_name:
        return Said("", "")
    status = await _called(socket, "Status", wire.StatusRequest(verbose=True), wire.StatusResponse)
    who = version.runtime_name, version.runtime_version
    return Said(*who, CdiSupport(knows_cdi(*who, enables_cdi(status.info)), spec_dirs(status.info)))


async def _called(socket: Path, method: str, request: Message, answers: type[M]) -> M:
    """Empty if there is no answer."""
    try:
        async with Channel(socket) as channel:
            return await called(channel, method, request, answers)
    except (grpc.aio.AioRpcError, DecodeError, OSError) as error:
        told = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
        _log.debug("the container runtime on %s doesn't answer %s: %s", socket, method, told)
        return answers()


async def called(channel: Channel, method: str, request: Message, answers: type[M]) -> M:
    """Raises AioRpcError or DecodeError if there is no answer."""
    raw = await channel.unary_unary(f"{SERVICE}/{method}")(request.SerializeToString(), timeout=DEADLINE)
    return answers.FromString(raw)


def _which(socket: Path) -> tuple[int, ...] | None:
    try:
        found = socket.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns

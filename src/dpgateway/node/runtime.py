"""A client of the container runtime: Version and Status of the Container Runtime Interface (CRI).

The answers show whether the runtime handles names of CDI devices, or silently drops them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from dpgateway.kit.channel import Channel
from dpgateway.kit.log import bind
from dpgateway.node.wire import cri_pb2 as wire

_USUAL = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",  # k3s and RKE2
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
)
SOCKETS = tuple(map(Path, _USUAL))
"""The default sockets of container runtimes."""
SERVICE = "/runtime.v1.RuntimeService"
DEADLINE = 1.0
"""Timeout of a call in seconds; an Allocate waits for it."""
ASKED_WITHIN = 2 * DEADLINE
"""The most seconds of :meth:`Runtime.said`."""

_KNOWS_CDI = {"containerd": (2, 0, 0), "cri-o": (1, 28, 0)}
"""The first versions that handle names over CRI by default (containerd #9621, cri-o #6944)."""
_IGNORES_CDI = {"containerd": (1, 7, 2), "cri-o": (1, 23, 0)}
"""The first versions that can handle names over CRI: containerd 1.7.0 and 1.7.1 know only annotations."""

_log = bind(__name__)

M = TypeVar("M", bound=Message)


def knows_cdi(name: str, version: str, enabled: bool | None = None) -> bool | None:
    """Whether this version handles names of CDI devices; None if unknown.

    ``enabled``: by its configuration; None if unknown.
    """
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None or name not in _KNOWS_CDI:
        return None
    release = int(found[1]), int(found[2]), int(found[3] or 0)
    if release < _IGNORES_CDI[name]:
        return False
    return enabled if enabled is not None else True if release >= _KNOWS_CDI[name] else None


def configured(info: Mapping[str, str]) -> tuple[bool | None, tuple[str, ...]]:
    """``enableCDI`` and ``cdiSpecDirs`` of the runtime's configuration in a Status; None, and empty, where they aren't
    there.

    containerd returns its configuration as JSON, from 1.7 on with ``enableCDI``, by default false in 1.7 and true in
    2.0 (Status in pkg/cri/server/status.go, PluginConfig in pkg/cri/config/config.go).
    """
    try:
        config = json.loads(info.get("config", ""))
    except (ValueError, RecursionError):
        return None, ()
    known = config if isinstance(config, dict) else {}
    enabled, dirs = known.get("enableCDI"), known.get("cdiSpecDirs")
    if not isinstance(dirs, list) or not all(isinstance(one, str) for one in dirs):
        dirs = []
    return enabled if isinstance(enabled, bool) else None, tuple(dirs)


class CdiSupport(NamedTuple):
    """How a runtime handles names of CDI devices."""

    by_name: bool | None
    """Whether it gives devices to containers by name; None if unknown."""
    spec_dirs: tuple[str, ...] = ()
    """The directories whose specs it reads; empty if unknown."""

    def of(self, *directories: Path) -> bool | None:
        """Whether it handles names whose specs are in these directories."""
        return False if self.unread(*directories) else self.by_name

    def unread(self, *directories: Path) -> tuple[Path, ...]:
        """The directories that it doesn't read."""
        read = {_plain(one) for one in self.spec_dirs}
        return tuple(one for one in directories if read and _plain(one) not in read)


def _plain(directory: str | Path) -> str:
    """Replaces /var/run, a link to /run on the host, which may be missing in the gateway's container."""
    return re.sub(r"^/var/run/", "/run/", os.path.normpath(directory))


class Said(NamedTuple):
    """The name, version and CDI support of a runtime."""

    name: str
    version: str
    cdi: CdiSupport = CdiSupport(None)


class Runtime:
    """Used from the event loop."""

    def __init__(self, socket: Path | None, usual: Sequence[Path] = SOCKETS) -> None:
        """Without a ``socket``, uses the only existing one of the ``usual`` sockets."""
        self._candidates: Sequence[Path] = usual if socket is None else (socket,)
        self._known: tuple[object, Said] | None = None

    async def cdi(self) -> CdiSupport:
        """Its support of CDI, as far as known."""
        said = await self.said()
        return said.cdi if said else CdiSupport(None)

    async def said(self) -> Said | None:
        """Its answers, asked for once per socket file, which a runtime creates when it starts. None if there isn't
        exactly one runtime, or it doesn't answer.
        """
        there = serving(self._candidates)
        if there is None:
            return None
        if self._known is None or self._known[0] != there:
            version = await _called(there[0], "Version", wire.VersionRequest(version="v1"), wire.VersionResponse)
            if version is None or not version.runtime_name:
                return None  # not remembered: the runtime may still be starting
            status = await _called(there[0], "Status", wire.StatusRequest(verbose=True), wire.StatusResponse)
            who = version.runtime_name, version.runtime_version
            enabled, spec_dirs = configured(status.info if status is not None else {})
            said = Said(*who, CdiSupport(knows_cdi(*who, enabled), spec_dirs))
            if status is None:
                return said  # not remembered: a busy runtime may tell its configuration later
            word = {True: "knows", False: "doesn't know", None: "may know"}[said.cdi.by_name]
            where = f", and reads specs in {' and '.join(said.cdi.spec_dirs)}" if said.cdi.spec_dirs else ""
            _log.info("the container runtime %s %s %s CDI%s", said.name, said.version, word, where)
            self._known = there, said
        return self._known[1]


def serving(candidates: Sequence[Path]) -> tuple[Path, tuple[int, ...]] | None:
    """The existing socket, and its file's identity; None unless there is exactly one."""
    there = []
    for one in candidates:
        with suppress(OSError):
            found = one.stat()
            there.append((one, (found.st_dev, found.st_ino, found.st_ctime_ns)))
    return there[0] if len(there) == 1 else None


async def _called(socket: Path, method: str, request: Message, answers: type[M]) -> M | None:
    """None if there is no answer."""
    try:
        async with Channel(socket) as channel:
            return await called(channel, method, request, answers)
    except (grpc.aio.AioRpcError, DecodeError, OSError) as error:
        details = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
        _log.debug("the container runtime on %s doesn't answer %s: %s", socket, method, details)
        return None


async def called(channel: Channel, method: str, request: Message, answers: type[M]) -> M:
    """Raises AioRpcError or DecodeError."""
    raw = await channel.unary_unary(f"{SERVICE}/{method}")(request.SerializeToString(), timeout=DEADLINE)
    return answers.FromString(raw)

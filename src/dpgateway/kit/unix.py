"""Addresses of unix sockets.

The kernel's limit for a socket's path is 107 bytes (struct sockaddr_un). A socket with a longer path is reached through
a descriptor of its directory: /proc/self/fd gives that directory a short path.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import socket
import sys
import termios
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

LONGEST = 107
"""Bytes."""
CONTROL_SOCKET = Path("/run/dpgateway/control.sock")
"""Where a running gateway says how it is, unless it is told otherwise."""
_LOOK = 0.002
"""Seconds between two looks at what a peer has read."""
_FRESH = 0.01
"""Seconds for which it stays known which descriptors are sockets."""


class Address:
    """Where gRPC binds or dials the socket ``path``. The path of its directory may have any length.

    Keep it until the server or the channel has stopped, then close it. Raises OSError if the directory isn't there.
    """

    def __init__(self, path: Path) -> None:
        self._directory: int | None = None
        if len(os.fsencode(path)) > LONGEST:
            self._directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            path = Path(f"/proc/self/fd/{self._directory}/{path.name}")
        self.path = str(path)
        """As the kernel knows it."""

    def __str__(self) -> str:
        return f"unix:{self.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def listen(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A socket at the path, with mode 0600, in place of what is there: bound under another name, and renamed. Raises
    OSError.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}-{time.time_ns()}")
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with Address(new) as address:
            listener.bind(address.path)
        new.chmod(0o600)
        listener.listen()
        new.rename(path)
    except BaseException:
        new.unlink(missing_ok=True)
        listener.close()
        raise
    return listener


def connect(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM, seconds: float = 0.0) -> socket.socket:
    """A connection to who listens there. ``seconds``: its timeout; 0: it never blocks. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(seconds)
        with Address(path) as address:
            connection.connect(address.path)
    except BaseException:
        connection.close()
        raise
    return connection


def accepted(paths: Collection[str]) -> list[int]:
    """The descriptors of the connections that this process accepted at ``paths``, as they were bound."""
    by_path = _by_path()
    found = (descriptor for path in paths for descriptor in by_path.get(path, ()))
    return [descriptor for descriptor in found if not _listens(descriptor)]


def _listens(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


async def read_by_peers(paths: Collection[str], seconds: float) -> None:
    """Returns when all that was written to connections accepted at ``paths`` is read, after ``seconds`` at most.

    ``paths``: as they were bound. Nothing tells when a peer reads, so this looks again and again.
    """
    end = time.monotonic() + seconds
    while any(map(_unread, _SOCKETS.of(paths))) and time.monotonic() < end:  # noqa: ASYNC110  there is no event
        await asyncio.sleep(_LOOK)


class _Sockets:
    """The descriptors of this process's unix sockets: listeners, and what they accepted, which has the same path.

    All of the process's descriptors are looked at, which takes milliseconds, and at the end every resource asks. So
    what was found is good for a moment. Somebody may wait a little for a descriptor that is another file's by then.
    """

    def __init__(self) -> None:
        self._found: Mapping[str, Sequence[int]] = {}
        self._looked = float("-inf")

    def of(self, paths: Collection[str]) -> Iterator[int]:
        if time.monotonic() - self._looked > _FRESH or not self._found.keys() >= set(paths):
            self._found, self._looked = _by_path(), time.monotonic()
        return itertools.chain.from_iterable(self._found.get(path, ()) for path in paths)


def _by_path() -> Mapping[str, Sequence[int]]:
    found: dict[str, list[int]] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  pathlib takes five times as long
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family == socket.AF_UNIX:
                    found.setdefault(str(copy.getsockname()), []).append(int(name))
    return found


_SOCKETS = _Sockets()


def _unread(descriptor: int) -> bool:
    """Whether the peer of a connection hasn't read all yet: SIOCOUTQ (net/unix/af_unix.c, unix_ioctl)."""
    try:
        raw = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))  # the same number as SIOCOUTQ
    except OSError:  # it is closed, or only listens
        return False
    return int.from_bytes(raw, sys.byteorder) > 0

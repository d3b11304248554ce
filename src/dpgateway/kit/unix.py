"""Unix sockets: addresses of any length, listening at a path that another process may have, connecting, credentials.

The kernel's limit for a socket's path is 107 bytes (struct sockaddr_un). A socket with a longer path is reached through
a descriptor of its directory: /proc/self/fd gives that directory a short path.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

ANSWERING = 0.2
"""Seconds that a listener has to accept a connection."""
LONGEST = 107
"""Bytes."""

_NEW = re.compile(r"[0-9]+-[0-9]+")
"""The suffix of a socket that isn't renamed yet: its process and the time."""
_UCRED = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7))."""


class Address(AbstractContextManager["Address"]):
    """The address at which gRPC binds or dials the socket ``path``, whose directory's path may have any length.

    Keep it until the server or the channel has stopped, then close it. Raises OSError if the directory isn't there.
    """

    def __init__(self, path: Path) -> None:
        self._directory: int | None = None
        if len(os.fsencode(path)) > LONGEST:
            self._directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            path = Path(f"/proc/self/fd/{self._directory}/{path.name}")
        self.path = str(path)
        """The path as given to the kernel."""

    def __str__(self) -> str:
        return f"unix:{self.path}"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def listen(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A listening socket of mode 0600 that atomically replaces the one at the path: bound under another name, then
    renamed. Raises OSError.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}-{time.time_ns()}")
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with Address(new) as address:
            listener.bind(address.path)
        new.chmod(0o600)
        # Renamed once it listens, so that no client finds a socket that refuses it.
        listener.listen()
        new.rename(path)
    except BaseException:
        new.unlink(missing_ok=True)
        listener.close()
        raise
    return listener


def sweep(path: Path) -> None:
    """Removes the sockets that processes killed within :func:`listen` left. Nobody else may listen at the path now."""
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for name in [entry.name for entry in entries]:
            if name.startswith(f"{path.name}.") and _NEW.fullmatch(name, len(path.name) + 1):
                path.with_name(name).unlink()


def connect(
    path: Path, kind: socket.SocketKind = socket.SOCK_STREAM, seconds: float = 0.0, name: str = ""
) -> socket.socket:
    """A connection to the listener at the path. ``seconds``: its timeout; 0: non-blocking. ``name``: its own address,
    in the abstract namespace, if the system lets it have one. Raises OSError.
    """
    connection = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(seconds)
        if name:
            with contextlib.suppress(OSError):
                connection.bind(f"\0{name}")
        with Address(path) as address:
            connection.connect(address.path)
    except BaseException:
        connection.close()
        raise
    return connection


class Credentials(NamedTuple):
    """A process as this one sees it, at the time of its connect(2) or listen(2)."""

    pid: int
    """0 if the process isn't in our pid namespace or below it, as seen from a container (pid_namespaces(7))."""
    uid: int
    gid: int


def credentials(connected: socket.socket) -> Credentials:
    """The peer's credentials: SO_PEERCRED, unix(7). Raises OSError."""
    return Credentials(*_UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def is_dead(path: Path) -> bool:
    """Whether nobody listens at this socket. One that answers late, or can't be asked, isn't dead."""
    try:
        connect(path, seconds=ANSWERING).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False

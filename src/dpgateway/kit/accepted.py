"""The connections that this process accepted on its unix sockets, and the process at the other end of each.

gRPC accepts on its own and tells neither descriptor nor peer, so the descriptors of the process are looked through. A
descriptor is known by its number and its inode, because numbers are used again at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

_UCRED = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7))."""


class Credentials(NamedTuple):
    """A process as this one sees it, at the time of its connect(2) or listen(2)."""

    pid: int
    """0: in a pid namespace that isn't below ours, as the host's isn't below a container's (pid_namespaces(7))."""
    uid: int
    gid: int


def credentials(connected: socket.socket) -> Credentials:
    """Of the peer: SO_PEERCRED, unix(7). Raises OSError."""
    return Credentials(*_UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


@dataclass(frozen=True, slots=True)
class Connection:
    """One that was accepted."""

    descriptor: int
    inode: int
    path: str
    """Of the listener, as it was bound."""
    peer: Credentials

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it."""
        try:
            if os.fstat(self.descriptor).st_ino != self.inode:
                return False
        except OSError:
            return False
        poll = select.poll()
        poll.register(self.descriptor, select.POLLRDHUP)
        return not poll.poll(0)


class Accepted:
    """Those of this process. Used from the event loop."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Connection | None]] = {}
        """By descriptor, each socket's inode; None: no connection that was accepted on a unix socket."""

    def at(self, paths: Collection[str]) -> list[Connection]:
        """Those known from earlier looks, as far as they are open."""
        return [one for _, one in self._known.values() if one is not None and one.path in paths and one.is_open]

    def look(self) -> None:
        """Takes some tenths of a millisecond for 200 descriptors."""
        known: dict[int, tuple[int, Connection | None]] = {}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  pathlib takes five times as long
            with contextlib.suppress(OSError):  # it was closed meanwhile
                found = os.fstat(descriptor := int(name))
                if stat.S_ISSOCK(found.st_mode):
                    inode, connection = self._known.get(descriptor, (None, None))
                    if inode != found.st_ino:
                        connection = _inspected(descriptor, found.st_ino)
                    known[descriptor] = found.st_ino, connection
        self._known = known


def _inspected(descriptor: int, inode: int) -> Connection | None:
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.family != socket.AF_UNIX or borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        path = str(borrowed.getsockname())
        return Connection(descriptor, inode, path, credentials(borrowed)) if path else None
    finally:
        borrowed.detach()


ACCEPTED = Accepted()
"""There is one of it in a process, so that what one resource has looked at needn't be looked at by the next."""

"""The process's accepted unix connections, with their peers, and whether those have read everything.

gRPC accepts on its own and exposes neither descriptor nor peer, so all descriptors of the process are scanned. A
connection is identified by descriptor and inode, because descriptors are reused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import socket
import stat
import sys
import termios
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from dpgateway.kit.unix import Credentials, credentials

_READING = 0.002
"""Seconds between two polls of unread bytes."""
_FRESH = 0.01
"""Seconds for which a scan stays valid when every resource wants one, as at the end."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An accepted connection."""

    descriptor: int
    inode: int
    path: str
    """The listener's path, as it was bound."""
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

    @property
    def is_unread(self) -> bool:
        """Whether the peer hasn't read everything yet: SIOCOUTQ (net/unix/af_unix.c, unix_ioctl)."""
        try:
            raw = fcntl.ioctl(self.descriptor, termios.TIOCOUTQ, bytes(4))  # the same number as SIOCOUTQ
        except OSError:  # closed meanwhile
            return False
        return int.from_bytes(raw, sys.byteorder) > 0


@dataclass(slots=True)
class Accepted:
    """The connections of this process. Used from the event loop."""

    _known: dict[int, tuple[int, Connection | None]] = field(default_factory=dict)
    """Each socket's inode and connection, by descriptor; None for other sockets than accepted unix connections."""
    _looked: float = float("-inf")

    def look(self, fresh: float = 0.0) -> None:
        """Scans all descriptors, unless a scan is younger than ``fresh`` seconds. 200 take some tenths of a
        millisecond.
        """
        if time.monotonic() - self._looked < fresh:
            return
        known: dict[int, tuple[int, Connection | None]] = {}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  pathlib takes five times as long
            with contextlib.suppress(OSError):  # it was closed meanwhile
                found = os.fstat(descriptor := int(name))
                if stat.S_ISSOCK(found.st_mode):
                    inode, connection = self._known.get(descriptor, (None, None))
                    if inode != found.st_ino:
                        connection = _inspected(descriptor, found.st_ino)
                    known[descriptor] = found.st_ino, connection
        self._known, self._looked = known, time.monotonic()

    def at(self, paths: Collection[str]) -> list[Connection]:
        """The open connections of the last scan at these ``paths``, as they were bound."""
        return [one for _, one in self._known.values() if one is not None and one.path in paths and one.is_open]

    async def read(self, paths: Collection[str], seconds: float) -> None:
        """Returns when the peers have read everything sent to them, or after ``seconds``."""
        end = time.monotonic() + seconds
        self.look(_FRESH)
        while any(one.is_unread for one in self.at(paths)) and time.monotonic() < end:
            await asyncio.sleep(_READING)  # there is no event
            self.look(_FRESH)


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
"""The process's only instance, so that resources share a scan."""

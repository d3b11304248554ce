"""The connections that this process accepted on its unix sockets, the process at the other end, and what it has read.

gRPC accepts on its own and tells neither descriptor nor peer, so the descriptors of the process are looked through. A
connection is known by its descriptor's number and inode, because numbers are used again at once.
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
from dataclasses import dataclass

from dpgateway.kit.unix import Credentials, credentials

_READING = 0.002
"""Seconds between two looks at what a peer has read."""
_FRESH = 0.01
"""Seconds for which a look at all descriptors counts when every resource wants one, as at the end."""


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

    @property
    def is_unread(self) -> bool:
        """Whether the peer hasn't read everything yet: SIOCOUTQ (net/unix/af_unix.c, unix_ioctl)."""
        try:
            raw = fcntl.ioctl(self.descriptor, termios.TIOCOUTQ, bytes(4))  # the same number as SIOCOUTQ
        except OSError:  # closed meanwhile
            return False
        return int.from_bytes(raw, sys.byteorder) > 0


class Accepted:
    """The connections of this process. Used from the event loop."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Connection | None]] = {}
        """By descriptor, each socket's inode; None: no connection that was accepted on a unix socket."""
        self._looked = float("-inf")

    def look(self, fresh: float = 0.0) -> None:
        """Looks through all descriptors, which takes some tenths of a millisecond for 200; not again within ``fresh``
        seconds.
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
        """Those known from earlier looks that are open. ``paths``: as they were bound."""
        return [one for _, one in self._known.values() if one is not None and one.path in paths and one.is_open]

    async def read(self, paths: Collection[str], seconds: float) -> None:
        """Returns when the peers have read all that was sent to them, or after ``seconds``."""
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
"""There is one of it in a process, so that what one resource has looked at needn't be looked at by the next."""

"""Addresses of unix sockets.

The kernel's own limit for a socket's path is 107 bytes (struct sockaddr_un). A longer one is reached through a
descriptor of its directory, which /proc makes a short path of.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

LONGEST = 107
"""Bytes."""


def address(socket: Path) -> str:
    """What gRPC calls the socket ``socket``, to bind or to dial; works for any length of its directory's path."""
    if len(os.fsencode(socket)) <= LONGEST:
        return f"unix:{socket}"
    return f"unix:/proc/self/fd/{_directory(socket.parent, socket.parent.stat().st_ino)}/{socket.name}"


@functools.cache
def _directory(path: Path, inode: int) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

"""Addresses of unix sockets.

The kernel's limit for a socket's path is 107 bytes (struct sockaddr_un). A socket with a longer path is reached through
a descriptor of its directory: /proc/self/fd gives that directory a short path.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

LONGEST = 107
"""Bytes."""


def address(socket: Path) -> str:
    """gRPC's address of ``socket``, to bind or to dial. The path of its directory may have any length."""
    if len(os.fsencode(socket)) <= LONGEST:
        return f"unix:{socket}"
    return f"unix:/proc/self/fd/{_directory(socket.parent, socket.parent.stat().st_ino)}/{socket.name}"


@functools.cache
def _directory(path: Path, inode: int) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

"""Unix sockets by path, which may be longer than the 107 bytes of a socket address."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

LONGEST = 107  # sun_path is 108 bytes with its closing zero: unix(7)
REAL_ROOT = "/var/lib/kubelet/"
REAL_DIRECTORY = f"{REAL_ROOT}device-plugins/"


@contextlib.contextmanager
def address(path: Path) -> Iterator[str]:
    """An address for bind or connect. A path that is too long goes through /proc/self/fd of its directory."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def bound(path: Path) -> socket.socket:
    """A socket bound to `path`, not listening yet."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        with address(path) as short:
            sock.bind(short)
    except OSError:
        sock.close()
        raise
    return sock


def connected(path: Path, endpoint: str, real: str = REAL_DIRECTORY) -> socket.socket:
    """A socket connected to `path`, which a kubelet has as `endpoint` below `real`. Raises EINVAL, as a kubelet would,
    if it is too long there.
    """
    if len(os.fsencode(real + endpoint)) > LONGEST:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        with address(path) as short:
            sock.connect(short)  # never blocks on a unix socket; a full backlog is EAGAIN
    except OSError:
        sock.close()
        raise
    return sock

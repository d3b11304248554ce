"""Directories in which nobody else may write, and the files in them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO


def make_private(directory: Path) -> None:
    """Makes it, and those above it. Raises OSError if it can't, or if what is there is somebody else's."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{directory} must belong to uid {os.geteuid()}, and nobody else may write there")


def read(path: Path, longest: int) -> bytes:
    """The file's bytes: ``longest`` of them, and one more if there are more. Raises OSError if it is no file, or a
    link; waits for nobody.
    """
    with open(path, "rb", opener=_open) as file:  # which closes it, and names it, also if it is a directory
        return at_once(file, longest + 1)


def at_once(file: IO[bytes], most: int) -> bytes:
    """What a file that was opened with O_NONBLOCK has. Raises BlockingIOError if it has nothing to read yet: what calls
    itself a regular file may be served by another program, or be /proc/kmsg.
    """
    found: bytes | None = file.read(most)
    if found is None:
        raise BlockingIOError(errno.EAGAIN, "it has nothing to read yet")
    return found


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe doesn't wait for its writer (open(2))

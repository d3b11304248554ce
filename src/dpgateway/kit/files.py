"""Reads and writes files shared with other processes, and makes private directories."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

_NEW = re.compile(r"\..+\.[a-z0-9_]{8}")
"""The names of new files: a dot, the name, and the eight characters of tempfile.mkstemp."""
_ABANDONED = 3600.0
"""Seconds."""


class NotAFileError(OSError):
    """It isn't a regular file."""

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(f"{path}: expected a regular file, found mode {mode:o}")
        self.mode = mode


class TooLongError(OSError):
    """The file exceeds the limit."""


class Contents(NamedTuple):
    """The content of a file, and its stat."""

    content: bytes
    status: os.stat_result


def read(
    path: Path, longest: int, check: Callable[[os.stat_result], object] | None = None, *, follow: bool = False
) -> Contents:
    """A whole file, of ``longest`` bytes at most. Never waits for another process. Raises OSError.

    ``check`` is called before reading, and may raise, because of the owner for example. ``follow``: follows a symbolic
    link, which else fails with ELOOP (open(2)).
    """
    before = path.stat(follow_symlinks=follow)  # opening a device may do something
    if not stat.S_ISREG(before.st_mode) and not stat.S_ISLNK(before.st_mode):
        raise NotAFileError(path, before.st_mode)
    # NONBLOCK: a pipe that has come in between doesn't wait for its writer (open(2))
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotAFileError(path, status.st_mode)
        if check is not None:
            check(status)
        content = at_once(file, longest + 1)
    if len(content) > longest:
        raise TooLongError(f"{path}: expected at most {longest} bytes, found {max(len(content), status.st_size)}")
    return Contents(content, status)


def at_once(file: IO[bytes], most: int) -> bytes:
    """Reads a file opened with O_NONBLOCK. Raises BlockingIOError if nothing can be read yet: even a regular file may
    be served by another program (FUSE), or be /proc/kmsg.
    """
    found: bytes | None = file.read(most)
    if found is None:
        raise BlockingIOError(errno.EAGAIN, "it has nothing to read yet", file.name)
    return found


def write(
    path: Path, content: bytes, *, sync: bool = True, lasting: bool = True, still: Callable[[], bool] = lambda: True
) -> bool:
    """Replaces the file atomically, with mode 0600: a reader sees the old content or the new one.

    ``sync``: so it is after a power cut, too (fsync(2)). ``lasting``: then it is the new one. ``still``: whether it may
    be replaced, asked once the disk has the content, which may take long; returns that. Raises OSError; then the file
    is as it was before.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(descriptor)
        if not still():
            new.unlink()
            return False
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if sync and lasting:  # the rename is a change of the directory (fsync(2))
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    return True


def sweep(directory: Path) -> None:
    """Removes the new files of writers that were killed before :func:`write` had renamed them. One that changed within
    the last hour may have a writer still. Raises OSError.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            if not _NEW.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(FileNotFoundError):  # renamed, or another process sweeps, too
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED:
                    Path(entry.path).unlink()


def make_private(directory: Path) -> None:
    """Creates the directory, with its parents. Raises OSError, also if another user may write into it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    expect_private(directory, directory.stat())


def expect_private(path: Path, found: os.stat_result) -> None:
    """Raises PermissionError if another user may write into this directory, or to this file."""
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{path} must belong to uid {os.geteuid()}, and nobody else may write there")

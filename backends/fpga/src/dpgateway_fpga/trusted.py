"""Access to files and directories that only root and the gateway's user can change or replace."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dpgateway import DriverError


@contextmanager
def trusted_directory(path: Path) -> Iterator[int]:
    """A descriptor of the directory at an absolute path, for ``dir_fd``. Raises DriverError, OSError.

    A user who can write any directory on the way could replace everything below it, so each is checked (as by sshd:
    OpenSSH, misc.c, safe_path), and the next one is opened relative to the checked one.
    """
    if not path.is_absolute():  # the directory on the way would be unchecked
        raise DriverError(f"expected an absolute path, found {path}")
    with ExitStack() as opened:
        here, shown = -1, Path()
        for name in path.parts:  # the first one is /
            shown /= name
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            here = os.open(name, flags, dir_fd=None if here < 0 else here)
            opened.callback(os.close, here)
            status = os.fstat(here)
            if stat.S_ISLNK(status.st_mode):
                why = "found a symbolic link: name the path that it leads to"
                raise DriverError(f"expected a directory at {shown}, {why}")
            if not stat.S_ISDIR(status.st_mode):
                raise DriverError(f"expected a directory at {shown}")
            check_owner_alone(f"a directory {shown}", status)
        yield here


def read_file(name: str | Path, longest: int, directory: int | None = None) -> bytes:
    """The content of a regular file, not through a link, and without blocking. Raises OSError; DriverError, also for a
    file of more than ``longest`` bytes.
    """

    def opened(path: str, flags: int) -> int:
        # NOFOLLOW: a symbolic link fails with ELOOP. NONBLOCK: a pipe doesn't wait for its writer (both open(2)).
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)

    with open(name, "rb", opener=opened) as file:  # which closes it, also if it is a directory
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DriverError("expected a regular file")
        content = file.read(longest + 1)
    if len(content) > longest:
        raise DriverError(f"expected at most {longest} bytes")
    return content


def write_file(name: str, content: bytes, mode: int, directory: int) -> None:
    """Writes a file atomically and durably. Raises OSError; then nothing of the new file is left.

    For one writer at a time of this name: the temporary file of one that died is replaced.
    """
    new = f".{name}.new"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)
    # EXCL: the name can't be a link to another file
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # half a file would keep a full disk full
        with suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise
    opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(opened)  # without it a power cut may undo the rename (fsync(2))
    finally:
        os.close(opened)


def check_owner_alone(what: str, status: os.stat_result) -> None:
    """Raises DriverError if other users than root and this process's own can write a file of this status."""
    if status.st_uid not in (0, os.geteuid()):
        raise DriverError(f"expected {what} owned by root or by user {os.geteuid()}, found user {status.st_uid}")
    # in a sticky directory, such as /tmp, others can add names, but can't replace ours (inode(7))
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise DriverError(f"expected {what} that only its owner can write (chmod go-w), found mode {mode}")

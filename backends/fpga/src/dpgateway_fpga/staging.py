"""Image files for the kernel and for tools, which read an image by its file name: digests, then the board's id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpgateway import DriverError
from dpgateway_fpga.trusted import read_file, trusted_directory, write_file

_STAGED = re.compile(r"\.?(?:[0-9a-f]{64}-)+(?P<whose>.+?)(?:\.new)?")
"""The name of an image file, or of its temporary file."""


class Unwritten(DriverError):
    """The file couldn't be written. The board wasn't touched, and another attempt may succeed."""

    again, touched = True, False


@contextmanager
def staged(directory: Path, name: str, content: bytes) -> Iterator[Path]:
    """Writes a file into a trusted directory, and removes it after the block. Raises DriverError, OSError.

    The complete file is renamed into place, so that no reader sees half of it. The caller has the board's lock, so all
    other images for it are leftovers of gateways that died, and removed. If the content changed during the block, the
    loaded bytes are unknown, which is an error.
    """
    directory = Path(os.path.realpath(directory.parent), directory.name)  # /lib is a link to /usr/lib on most systems
    try:
        directory.mkdir(mode=0o755, exist_ok=True)
        with trusted_directory(directory) as inside:
            _remove_leftovers(directory, name, inside)
            write_file(name, content, 0o644, inside)
    except (DriverError, OSError) as error:
        raise Unwritten(f"the image can't be put at {directory / name}: {error}") from error
    file = directory / name
    before = _identity(file)
    try:
        yield file
        if _identity(file) not in {before, ()}:
            found = None
            with suppress(DriverError, OSError):  # a link, a pipe, a longer file
                found = read_file(file, len(content))
            if found != content:
                raise DriverError(f"{file} was changed while it was loaded, so the board's image isn't known")
    finally:
        with suppress(OSError):  # it was removed, or the disk is read-only by now
            file.unlink()


def _remove_leftovers(directory: Path, name: str, inside: int) -> None:
    """Removes the files that differ from ``name`` only in their digests."""
    new = _STAGED.fullmatch(name)
    if new is None:
        return
    for file in directory.iterdir():
        left = _STAGED.fullmatch(file.name)
        if left is not None and left["whose"] == new["whose"]:
            with suppress(OSError):  # it costs space, and no more
                os.unlink(file.name, dir_fd=inside)


def _identity(file: Path) -> tuple[int, ...]:
    """Metadata that changes with the content; empty if the file is absent."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

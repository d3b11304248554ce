"""Reads a bitstream, and refuses the file in any doubt, so that only the operator's own can be programmed."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass

from dpgateway import DriverError
from dpgateway_fpga.boards import Bitstream
from dpgateway_fpga.trusted import check_owner_alone, trusted_directory


@dataclass(frozen=True, slots=True)
class Image:
    """The bytes to program: the very bytes whose digest was checked, so that the file may change afterwards."""

    content: bytes
    sha256: str
    suffix: str = ""
    """The suffix of the file's name, by which tools know the format."""


def read_image(bitstream: Bitstream) -> Image:
    """The bitstream's bytes. Raises DriverError, with the fault of the file or of a directory above it."""
    try:
        with trusted_directory(bitstream.path.parent) as directory:
            # NOFOLLOW: a symbolic link fails with ELOOP. NONBLOCK: a pipe doesn't wait for its writer (both open(2)).
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(bitstream.path.name, flags, dir_fd=directory)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DriverError("expected a regular file")
            check_owner_alone("a file", status)
            _check_size(status.st_size, bitstream)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(bitstream.max_bytes + 1)
            _check_size(len(content), bitstream)  # the file may have grown since
        finally:
            os.close(descriptor)
        sha256 = hashlib.sha256(content).hexdigest()
        if bitstream.sha256 not in (None, sha256):
            raise DriverError(f"expected the sha256 {bitstream.sha256}, found {sha256}")
    except (DriverError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DriverError(f"bitstream {bitstream.id!r} ({bitstream.path}) is refused: {why}") from error
    return Image(content, sha256, bitstream.path.suffix)


def _check_size(size: int, bitstream: Bitstream) -> None:
    if not 0 < size <= bitstream.max_bytes:
        raise DriverError(f"expected 1 to {bitstream.max_bytes} bytes, found {size}")

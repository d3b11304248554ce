"""Reads a bitstream, and refuses the file at any doubt, so that only what the operator meant can be programmed."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass

from dpgateway import DriverError
from dpgateway_fpga.options import Bitstream


@dataclass(frozen=True, slots=True)
class Image:
    """The bytes to program, which are the same bytes whose digest was checked."""

    content: bytes
    sha256: str


def read_image(bitstream: Bitstream) -> Image:
    """Raises DriverError, which says what is wrong with the file."""
    content = _read(bitstream)
    sha256 = hashlib.sha256(content).hexdigest()
    if bitstream.sha256 not in (None, sha256):
        raise _refused(bitstream, f"expected the sha256 {bitstream.sha256}, found {sha256}")
    return Image(content, sha256)


def _read(bitstream: Bitstream) -> bytes:
    try:
        # NOFOLLOW: a symbolic link fails with ELOOP. NONBLOCK: a pipe doesn't wait for its writer (both open(2)).
        descriptor = os.open(bitstream.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if wrong := _wrong(os.fstat(descriptor), bitstream.max_bytes):
                raise _refused(bitstream, wrong)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(bitstream.max_bytes + 1)  # the file may have grown since
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(bitstream, error.strerror or repr(error)) from error
    if not 0 < len(content) <= bitstream.max_bytes:
        raise _refused(bitstream, f"expected 1 to {bitstream.max_bytes} bytes, found {len(content)} or more")
    return content


def _wrong(status: os.stat_result, max_bytes: int) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "expected a regular file"
    if status.st_uid not in (0, os.geteuid()):
        return f"expected a file owned by root or by user {os.geteuid()}, found user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"expected a file that only its owner can write, found mode {stat.S_IMODE(status.st_mode):04o}"
    if not 0 < status.st_size <= max_bytes:
        return f"expected 1 to {max_bytes} bytes, found {status.st_size}"
    return None


def _refused(bitstream: Bitstream, why: str) -> DriverError:
    return DriverError(f"bitstream {bitstream.id!r} ({bitstream.path}) is refused: {why}")

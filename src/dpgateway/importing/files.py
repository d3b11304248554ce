"""Reads a file, or what a program writes into a pipe."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

from dpgateway.config import InvalidConfiguration, Place, Problem

LARGEST = 4 * 1024 * 1024
"""Bytes."""
PATIENCE = 60.0
"""Seconds to wait for data from a pipe, which may be kubectl's output."""


def contents(path: Path, patience: float) -> str:
    """The text of a file. Raises InvalidConfiguration.

    ``patience``: seconds to wait for more data from a pipe.
    """
    try:
        raw = _bytes(path, patience)
    except OSError as error:
        raise InvalidConfiguration(
            [Problem(Place(str(path)), f"a file that can't be read ({error.strerror})")]
        ) from error
    if len(raw) > LARGEST:
        raise InvalidConfiguration([Problem(Place(str(path)), f"more than {LARGEST} bytes", "a configuration")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = Place(str(path), raw.count(b"\n", 0, error.start) + 1)
        raise InvalidConfiguration([Problem(place, "bytes that aren't UTF-8", "text in UTF-8")]) from error


def _bytes(path: Path, patience: float) -> bytes:
    """Up to LARGEST + 1 bytes. Raises OSError, ETIMEDOUT if no data arrived for ``patience`` seconds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO may have no writer: fifo(7)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        raw = bytearray()
        while len(raw) <= LARGEST:
            if not poll.poll(patience * 1000):
                raise OSError(errno.ETIMEDOUT, f"nothing came for {patience:g} s")
            if not (part := os.read(descriptor, LARGEST + 1 - len(raw))):
                break
            raw += part
        return bytes(raw)
    finally:
        os.close(descriptor)

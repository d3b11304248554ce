"""Ends a command with a one-line error if standard output can't be written: it is closed, or its disk is full."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TextIO, cast


class _Closed(io.TextIOBase):
    """Replaces None, Python's ``sys.stdout`` if the descriptor was closed at the start. Only writing fails, because a
    command may have nothing to print.
    """

    def write(self, text: str) -> NoReturn:
        raise OSError("it is closed")


@contextlib.contextmanager
def told_in_one_line() -> Iterator[None]:
    """Ends the process with exit code 1 if its body can't print."""
    if sys.stdout is None:
        sys.stdout = cast("TextIO", _Closed())
    try:
        yield
    except OSError:
        if not (why := _unwritable()):
            raise
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  Python flushes it at exit
        with contextlib.suppress(OSError):
            print(f"Error: standard output can't be written: {why}", file=sys.stderr)
        sys.exit(1)


def _unwritable() -> str:
    """Why standard output can't be written; empty if it can. The probe is a newline, which does no harm."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""

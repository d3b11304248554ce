"""Standard output that can't be written, because it is closed or its disk is full, ends a command with one line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TextIO, cast


class _Closed(io.TextIOBase):
    """Stands for a standard output that was closed before we began, where Python has None. Only writing fails, because
    a command may have nothing to print.
    """

    def write(self, text: str) -> NoReturn:
        raise OSError("it is closed")


@contextlib.contextmanager
def told_in_one_line() -> Iterator[None]:
    """Ends the process with exit code 1 if what happens within can't be printed."""
    if sys.stdout is None:
        sys.stdout = cast("TextIO", _Closed())
    try:
        yield
    except OSError:
        if not (why := _unwritable()):
            raise
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  at its exit Python would fail again to write the rest
        with contextlib.suppress(OSError):
            print(f"Error: standard output can't be written: {why}", file=sys.stderr)
        sys.exit(1)


def _unwritable() -> str:
    """Why nothing can be printed; empty if it can. An end of line does no harm, and asks the system itself."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""

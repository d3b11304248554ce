"""Turns printed output into lines of the log, because a driver's ``print`` would break JSON lines.

Output of C code and of child processes goes to the descriptors directly, and may be mixed into a line.
"""

from __future__ import annotations

import io
import logging
import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _PrintedLines(io.RawIOBase):
    """Makes a record of each line, for the log's own handler only: another one might print it, recursing endlessly."""

    def __init__(self, name: str, level: int, handler: logging.Handler, descriptor: int) -> None:
        super().__init__()
        self._name, self._level, self._handler, self._descriptor = name, level, handler, descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """For child processes, and for crash dumps."""
        return self._descriptor

    def write(self, data: ReadableBuffer, /) -> int:
        written = bytes(data)
        fields = {"name": self._name, "levelno": self._level, "levelname": logging.getLevelName(self._level)}
        fields["thread_name"] = threading.current_thread().name
        for line in written.decode(errors="backslashreplace").splitlines():
            if line.strip():
                self._handler.handle(logging.makeLogRecord({**fields, "msg": line}))
        return len(written)


def printed(name: str, level: int, handler: logging.Handler, descriptor: int) -> TextIO:
    """A stream for ``sys.stdout`` or ``sys.stderr``."""
    lines = io.BufferedWriter(_PrintedLines(name, level, handler, descriptor))
    return io.TextIOWrapper(lines, "utf-8", "backslashreplace", line_buffering=True)

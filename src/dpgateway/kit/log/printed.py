"""Makes lines of the log of what is printed in the process: a driver's ``print`` would break JSON lines.

What C code and child processes write to the descriptors goes to standard error as it is, and may join a line.
"""

from __future__ import annotations

import io
import logging
import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _PrintedLines(io.RawIOBase):
    """Makes a record of each line, for the log's own handler: another one might print the record, without end."""

    def __init__(self, name: str, level: int, handler: logging.Handler, descriptor: int) -> None:
        super().__init__()
        self._name, self._level, self._handler, self._descriptor = name, level, handler, descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """For child processes, and for what is written when the process crashes."""
        return self._descriptor

    def write(self, data: ReadableBuffer, /) -> int:
        written = bytes(data)
        for line in written.decode(errors="backslashreplace").splitlines():
            if line.strip():
                self._handler.handle(self._record(line))
        return len(written)

    def _record(self, line: str) -> logging.LogRecord:
        fields = {"name": self._name, "levelno": self._level, "levelname": logging.getLevelName(self._level)}
        return logging.makeLogRecord({**fields, "msg": line, "thread_name": threading.current_thread().name})


def printed(name: str, level: int, handler: logging.Handler, descriptor: int) -> TextIO:
    """A stream for ``sys.stdout`` or ``sys.stderr``."""
    lines = io.BufferedWriter(_PrintedLines(name, level, handler, descriptor))
    return io.TextIOWrapper(lines, "utf-8", "backslashreplace", line_buffering=True)

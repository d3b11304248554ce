"""A thread that writes the log, so that a stuck reader of the log blocks nothing else.

Theory of operation. A caller formats its line and appends it to ``_waiting``; the thread writes the lines in this
order. ``_bytes``, the size of the waiting lines, is limited: beyond MOST_WAITING lines are dropped, and counted in
``_lost`` until a warning reports them. :meth:`Queued.written` appends an event, which the thread sets in its turn, when
all earlier lines are written.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from typing import TextIO

from dpgateway.errors import describe
from dpgateway.kit.log.events import Events
from dpgateway.kit.log.lines import JsonFormatter, shown

GATHERING = 0.01
"""Seconds in which lines are batched. Waking the thread for each line would cost the caller more than the rest of the
line, because both threads contend for the interpreter's lock."""
MOST_WAITING = 8 * 1024 * 1024
"""Most bytes of unwritten lines. Further lines are dropped, and counted."""


class Queued(logging.Handler):
    """Never raises. Formats each record on the thread that logged it, without a lock, because formatting a driver's
    record may hang.
    """

    def __init__(self, stream: TextIO, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._stream, self._lines = stream, formatter or JsonFormatter()
        self.events = Events()
        self._waiting: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._hurry = threading.Event()
        """Set while a caller waits for its lines to be written."""
        self._counting = threading.RLock()  # may be entered twice: a collected object may log while a line is counted
        self._bytes = self._lost = 0
        self.lost = 0
        """Number of lines lost so far."""
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def handle(self, record: logging.LogRecord) -> bool:
        with contextlib.suppress(Exception):  # the line is logged even if its event fails
            self.events.add(record)

        line = None
        if self._bytes < MOST_WAITING:  # otherwise it would be dropped anyway
            try:
                line = self._lines.format(record)
            except Exception as error:
                line = self._plain(record.levelname, record.name, f"{shown(record.msg)} ({describe(error)})")

        with self._counting:
            if line is None or self._bytes + sys.getsizeof(line) > MOST_WAITING:
                self._lost += 1
                self.lost += 1
                return True
            self._bytes += sys.getsizeof(line)
        self._waiting.put(line)
        return True

    def _plain(self, level: str, logger: str, message: str) -> str:
        return self._lines.format(logging.makeLogRecord({"levelname": level, "name": logger, "msg": message}))

    def written(self, seconds: float) -> None:
        """Waits until every earlier line is written, ``seconds`` at most."""
        mark = threading.Event()
        self._waiting.put(mark)
        self._hurry.set()
        mark.wait(seconds)

    def _write(self) -> None:
        while True:
            if self._waiting.empty():
                self._hurry.wait(GATHERING)
            line = self._waiting.get()
            if isinstance(line, threading.Event):
                self._hurry.clear()
                line.set()
                continue
            self._say(line)
            with self._counting:
                self._bytes -= sys.getsizeof(line)
                # Reported once the queue is half empty, so that one warning covers a burst.
                lost = self._lost if self._bytes < MOST_WAITING // 2 else 0
                self._lost -= lost
            if lost:
                self._say(self._plain("WARNING", __name__, f"{lost} lines were lost, because nobody read the log"))

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the stream or its other end is closed
            self._stream.write(f"{line}\n")
            self._stream.flush()

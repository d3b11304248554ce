"""The log: text for people, JSON lines for machines, and nothing else on standard error.

:func:`setup` also logs what would bypass logging: warnings, and uncaught exceptions.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TextIO

from dpgateway.errors import describe, encodable

Format = Literal["auto", "text", "json"]

FIELDS = ("resource", "api", "device")
"""The extra fields that come first, in this order."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_log = logging.getLogger(__name__)


class Bound(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry fields. Fields that a call gives with ``extra`` win."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401  logging's own
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def bind(logger: str | logging.Logger | logging.LoggerAdapter[logging.Logger], **extra: object) -> Bound:
    """``logger`` with ``extra`` fields (``resource``, ``api``, ``device``, ...) in addition to its own fields."""
    if isinstance(logger, logging.LoggerAdapter):
        return Bound(logger.logger, {**(logger.extra or {}), **extra})
    return Bound(logging.getLogger(logger) if isinstance(logger, str) else logger, extra)


def setup(log_format: Format = "auto", level: str | int = "INFO", stream: TextIO | None = None) -> None:
    """The process logs to ``stream`` (default: standard error) and to nothing else. May be called again."""
    stream = stream or sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115  a process may have no standard error
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = _Handler(stream)
    handler.setFormatter(Text() if text else Json())
    root = logging.getLogger()
    for old in root.handlers[:]:
        # Other handlers that write to the same terminal would print everything twice.
        if isinstance(old, _Handler | _Queued) or getattr(old, "stream", None) in (sys.stderr, sys.stdout):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    logging.captureWarnings(capture=True)
    sys.excepthook, threading.excepthook, sys.unraisablehook = _uncaught, _uncaught_in_thread, _unraisable


class _Handler(logging.StreamHandler[TextIO]):
    """A class of our own, so that a second setup finds the handler."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Does nothing: a line that can't be written can't be reported, and a traceback would break the JSON lines."""


MOST_WAITING = 10_000
"""Lines that may wait until somebody reads them. Further lines are lost, and counted."""


class _Queued(logging.Handler):
    """A thread writes the lines. Never raises, and has no lock, because formatting what a driver logs may hang."""

    def __init__(self, handler: logging.StreamHandler[TextIO]) -> None:
        super().__init__()
        self.setFormatter(handler.formatter)
        self._stream = handler.stream
        self._waiting: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._lost = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def handle(self, record: logging.LogRecord) -> bool:
        wanted = bool(self.filter(record))
        if wanted:
            self.emit(record)
        return wanted

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= MOST_WAITING:
            self._lost += 1
            return
        try:
            line = self.format(record)
        except Exception as error:
            line = self._plain(record.levelname, record.name, f"{_shown(record.msg)} ({describe(error)})")
        self._waiting.put(line)

    def _plain(self, level: str, logger: str, message: str) -> str:
        return self.format(logging.makeLogRecord({"levelname": level, "name": logger, "msg": message}))

    def written(self, seconds: float) -> None:
        """Waits until every line that was logged before is written, ``seconds`` at most."""
        mark = threading.Event()
        self._waiting.put(mark)
        mark.wait(seconds)

    def _write(self) -> None:
        while True:
            line = self._waiting.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._say(line)
            if self._lost and self._waiting.qsize() < MOST_WAITING // 2:
                lost, self._lost = self._lost, 0
                self._say(self._plain("WARNING", __name__, f"{lost} lines were lost, because nobody read the log"))

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the stream or its other end is closed
            self._stream.write(f"{line}\n")
            self._stream.flush()


def hurry() -> None:
    """From now on a thread writes the log, so that a caller never waits until somebody reads the log."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
            root.addHandler(_Queued(handler))


def finish(seconds: float) -> None:
    """Waits until the thread of :func:`hurry` has written all lines, ``seconds`` at most."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Queued):
            handler.written(seconds)


class _Formatter(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        """The record's extra fields; FIELDS come first, in their order."""
        extra: Mapping[str, object] = {key: value for key, value in vars(record).items() if key not in _USUAL}
        known = {key: _shown(extra[key]) for key in FIELDS if extra.get(key) is not None}
        return known | {key: _shown(value) for key, value in extra.items() if key not in known and value is not None}

    def message(self, record: logging.LogRecord) -> str:
        try:
            return record.getMessage()
        except Exception:  # a wrong format string must not cost the message
            return f"{_shown(record.msg)} {_shown(record.args)}"

    def exception(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
        return "\n".join(parts + ([self.formatStack(record.stack_info)] if record.stack_info else []))


def _shown(value: object) -> str:
    try:
        return str(value)
    except BaseException as error:  # a driver may log what it likes
        return f"<{type(value).__name__} that can't be shown: {type(error).__name__}>"


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Text(_Formatter):
    """``time LEVEL message key=value ...``, then the traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={value}" for key, value in self.fields(record).items())
        exception = self.exception(record)
        line = f"{_timestamp(record)} {record.levelname:<7} {self.message(record)}{fields}"
        return encodable(f"{line}\n{exception}" if exception else line)


class Json(_Formatter):
    """One JSON object per line: ts (RFC 3339, UTC), level, logger, message, the fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.message(record),
        }
        entry = {**self.fields(record), **entry}
        order = ("ts", "level", "logger", "message")
        entry = {key: entry[key] for key in order} | entry
        exception = self.exception(record)
        return json.dumps(entry | ({"exception": exception} if exception else {}))


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _log.critical("uncaught %s", kind.__name__, exc_info=(kind, error, traceback))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return  # as threading's own hook does
    error = args.exc_value or args.exc_type()
    thread = args.thread.name if args.thread else "a thread"
    _log.error(
        "uncaught %s, in %s", args.exc_type.__name__, thread, exc_info=(args.exc_type, error, args.exc_traceback)
    )


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    message = args.err_msg or "exception ignored in"
    exc_info = (args.exc_type, args.exc_value, args.exc_traceback) if args.exc_value else None
    _log.error("%s %r", message, args.object, exc_info=exc_info)

"""Sets ``logging`` up: one stream, one format, one level for the process.

:func:`setup` also logs warnings and uncaught exceptions, which would bypass logging. Drivers share ``logging`` with the
gateway, so one that reconfigures it changes the gateway's log, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from dpgateway.kit.log.events import Events
from dpgateway.kit.log.lines import DRIVERS, Format, JsonFormatter, TextFormatter
from dpgateway.kit.log.printed import printed
from dpgateway.kit.log.queued import Queued

CHATTY = {"asyncio": logging.INFO, "grpc": logging.INFO, "httpcore2": logging.INFO, "httpx2": logging.WARNING}
"""Libraries that log each call, or each request, below these levels, which is noise."""
LAST_LINES = 1.0
"""Timeout in seconds for writing the last lines when a command ends."""


class Bound(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry fields. Fields that a call gives with ``extra`` win."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401  logging's own
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def bind(logger: str | logging.Logger | logging.LoggerAdapter[logging.Logger], **extra: object) -> Bound:
    """``logger`` with ``extra`` fields (``resource``, ``driver``, ``api``, ...) in addition to its own fields."""
    if isinstance(logger, logging.LoggerAdapter):
        return Bound(logger.logger, {**(logger.extra or {}), **extra})
    return Bound(logging.getLogger(logger) if isinstance(logger, str) else logger, extra)


def of_driver(driver: str, resource: str) -> Bound:
    """The log of one resource's driver."""
    return bind(DRIVERS + driver, resource=resource, driver=driver)


_log = bind(__name__)
_NO_EVENTS = Events()


def setup(log_format: Format = "auto", level: str | int = "INFO", stream: TextIO | None = None) -> None:
    """The process logs to ``stream`` (default: standard error) and to nothing else. May be called again."""
    stream = stream or sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115  a process may have no standard error
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = _Handler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    # other handlers that write to the same terminal would print everything twice
    terminal = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    others = [one for one in root.handlers if not isinstance(one, _Handler | Queued)]
    root.handlers[:] = [*(one for one in others if getattr(one, "stream", None) not in terminal), handler]
    root.setLevel(number := logging.getLevelName(level.upper()) if isinstance(level, str) else level)
    for name, least in CHATTY.items():
        logging.getLogger(name).setLevel(max(number, least))
    logging.captureWarnings(capture=True)
    sys.excepthook, threading.excepthook, sys.unraisablehook = _uncaught, _uncaught_in_thread, _unraisable


class _Handler(logging.StreamHandler[TextIO]):
    """A class of our own, so that a second setup finds the handler."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Does nothing: a line that can't be written can't be reported, and a traceback would break the JSON lines."""


@contextlib.contextmanager
def captured() -> Iterator[None]:
    """While inside, a thread writes the log, and printed output becomes its lines. For running drivers."""
    streams = sys.stdout, sys.stderr
    if (handler := in_background()) is not None:
        sys.stdout = printed("stdout", logging.INFO, handler, 1)
        sys.stderr = printed("stderr", logging.WARNING, handler, 2)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        finish(LAST_LINES)


def in_background() -> Queued | None:
    """Moves writing to a thread, so that no caller waits for the log's reader."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
            root.addHandler(queued := Queued(handler.stream, handler.formatter))
            return queued
    return None


def _queued() -> Queued | None:
    return next((one for one in logging.getLogger().handlers if isinstance(one, Queued)), None)


def recent() -> Events:
    """The last events; none without the thread of :func:`in_background`."""
    queued = _queued()
    return queued.events if queued is not None else _NO_EVENTS


def lost() -> int:
    """Number of lines lost so far, because the log wasn't read."""
    queued = _queued()
    return queued.lost if queued is not None else 0


def finish(seconds: float) -> None:
    """Waits until the thread of :func:`in_background` has written all lines, ``seconds`` at most."""
    if (queued := _queued()) is not None:
        queued.written(seconds)


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _log.critical("uncaught %s", kind.__name__, exc_info=(kind, error, traceback))
    finish(LAST_LINES)  # the process ends now, and with it the thread that writes


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

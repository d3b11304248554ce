"""Where the log goes, from which level on, and that this stays so, whatever a driver does to ``logging``.

:func:`setup` also logs what would bypass logging: warnings, and uncaught exceptions.
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
from dpgateway.kit.log.lines import DRIVERS, Format, Json, Text
from dpgateway.kit.log.printed import printed
from dpgateway.kit.log.queued import Queued

CHATTY = ("asyncio", "grpc")
"""Libraries that log each call at the level debug; nobody who looks for a fault of a driver wants that."""
LAST_LINES = 1.0
"""Seconds that the last lines have to be written when a command ends."""


class Bound(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry fields. Fields that a call gives with ``extra`` win."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401  logging's own
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  logging's name
        """Called before each line, so a driver that has just switched the log off doesn't cost one."""
        if _kept is not None and not _kept.stands(self.logger):
            _kept.put()
        return super().isEnabledFor(level)


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
    handler.setFormatter(Text() if text else Json())
    _SetUp(handler, logging.getLevelName(level.upper()) if isinstance(level, str) else level).put()
    logging.captureWarnings(capture=True)
    sys.excepthook, threading.excepthook, sys.unraisablehook = _uncaught, _uncaught_in_thread, _unraisable


class _Handler(logging.StreamHandler[TextIO]):
    """A class of our own, so that a second setup finds the handler."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Does nothing: a line that can't be written can't be reported, and a traceback would break the JSON lines."""


class _SetUp:
    """What has to be true of ``logging``. A driver may call ``dictConfig``, ``disable``, ``basicConfig``, and more."""

    def __init__(self, handler: logging.Handler, level: int) -> None:
        self.handler, self.level = handler, level
        self._handlers: list[logging.Handler] = []

    def stands(self, logger: logging.Logger) -> bool:
        """Whether nothing has changed for ``logger``. Called for each line, so it is quick."""
        root = logging.root
        return (
            not logger.disabled
            and not root.manager.disable
            and root.handlers == self._handlers
            and root.level == self.level
            and _ours.propagate
            and not (_ours.level or _ours.filters or _ours.handlers)
            and logging.getLogRecordFactory() is logging.LogRecord
            and logging.getLoggerClass() is logging.Logger
        )

    def put(self) -> None:
        """Makes it true."""
        root = logging.root
        # Other handlers that write to the same terminal would print everything twice.
        others = [one for one in root.handlers if one is not self.handler and not _prints(one)]
        self._handlers = [*others, self.handler]
        root.handlers[:] = self._handlers
        root.setLevel(self.level)
        logging.disable(logging.NOTSET)
        logging.setLogRecordFactory(logging.LogRecord)
        logging.setLoggerClass(logging.Logger)
        for name, logger in list(root.manager.loggerDict.items()):
            if isinstance(logger, logging.Logger):
                logger.disabled = False
                if name.partition(".")[0] == _ours.name:
                    _reset(logger)
        for name in CHATTY:
            logging.getLogger(name).setLevel(max(self.level, logging.INFO))


_ours = logging.getLogger("dpgateway")
_kept: _SetUp | None = None
"""What drivers can't change; None while no driver runs here for long."""


def _prints(handler: logging.Handler) -> bool:
    streams = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return isinstance(handler, _Handler | Queued) or getattr(handler, "stream", None) in streams


def _reset(logger: logging.Logger) -> None:
    logger.propagate = True
    logger.filters.clear()
    logger.handlers.clear()
    if logger.level:
        logger.setLevel(logging.NOTSET)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Within, drivers run: a thread writes the log, no driver can change it, and what is printed becomes its lines."""
    global _kept  # noqa: PLW0603  as logging's own state, there is one of it in a process
    streams = sys.stdout, sys.stderr
    if (handler := hurry()) is not None:
        _kept = _SetUp(handler, logging.root.level)
        _kept.put()
        sys.stdout, sys.stderr = (
            printed("stdout", logging.INFO, handler, 1),
            printed("stderr", logging.WARNING, handler, 2),
        )
    try:
        yield
    finally:
        _kept = None
        sys.stdout, sys.stderr = streams
        finish(LAST_LINES)


def hold() -> None:
    """Puts back what a driver that has just run may have changed."""
    if _kept is not None and not _kept.stands(_log.logger):
        _kept.put()


def hurry() -> Queued | None:
    """From now on a thread writes the log, so that a caller never waits until somebody reads the log."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
            root.addHandler(queued := Queued(handler.stream, handler.formatter))
            return queued
    return None


def recent() -> Events:
    """What the log said last; empty in a process that has no thread to write its log."""
    found = (handler.events for handler in logging.getLogger().handlers if isinstance(handler, Queued))
    return next(found, _NO_EVENTS)


def lost() -> int:
    """How many lines were lost so far, because nobody read the log."""
    return sum(handler.lost for handler in logging.getLogger().handlers if isinstance(handler, Queued))


def finish(seconds: float) -> None:
    """Waits until the thread of :func:`hurry` has written all lines, ``seconds`` at most."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Queued):
            handler.written(seconds)


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

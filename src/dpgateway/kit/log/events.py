"""The last important lines of the log, as values, for the status: its readers may not have the log.

These are the gateway's own lines and drivers' warnings, from the log's level on. They are bounded in number and size,
because a text may be a driver's.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dpgateway.errors import encodable
from dpgateway.kit.log.lines import DRIVERS, MOST_NAMED, message, shown, timestamp

MOST = 200
"""Most events."""
MOST_CHARACTERS = 128 * 1024
"""Most characters of all events together."""
LONGEST_TEXT = 1000
"""Most characters of a message, and of a name."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line of the log."""

    time: str
    """RFC 3339, UTC."""
    level: str
    message: str
    resource: str
    """The resource's name; empty if the line isn't about one resource."""
    devices: tuple[str, ...]
    """The first ten device ids."""


@dataclass(slots=True)
class Events:
    """A bounded queue of events. Used from any thread."""

    _kept: deque[LogEvent] = field(default_factory=deque)
    _size: int = 0
    _adding: threading.RLock = field(default_factory=threading.RLock)
    """It may be entered twice: a collected object may log meanwhile."""
    added: Callable[[], object] = lambda: None
    """Called after each event, on the thread that logged it."""

    def last(self) -> tuple[LogEvent, ...]:
        """The kept events, oldest first."""
        with self._adding:
            return tuple(self._kept)

    def add(self, record: logging.LogRecord) -> None:
        """Keeps the record if it is important."""
        name = shown(record.name)
        driver, own = name.startswith(DRIVERS), name.startswith("dpgateway.")
        if not own or record.levelno < (logging.WARNING if driver else logging.INFO):
            return

        resource, devices = getattr(record, "resource", None), getattr(record, "devices", None)
        event = LogEvent(
            timestamp(record),
            _text(record.levelname).lower(),
            _text(message(record)),
            "" if resource is None else _text(resource),
            tuple(map(_text, devices[:MOST_NAMED])) if isinstance(devices, list | tuple) else (),
        )
        with self._adding:
            self._kept.append(event)
            self._size += _size(event)
            while len(self._kept) > MOST or self._size > MOST_CHARACTERS:
                self._size -= _size(self._kept.popleft())
        self.added()


def _size(event: LogEvent) -> int:
    return len(event.message) + len(event.resource) + sum(map(len, event.devices))


def _text(value: object) -> str:
    text = encodable(shown(value))
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."

"""Formats any record as one line of text or JSON.

A record may be a driver's. Its content can't end a JSON line, forge another line of text, move a terminal's cursor, or
exhaust the process's memory.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from dpgateway.errors import encodable, printable

Format = Literal["auto", "text", "json"]

FIELDS = (
    *("resource", "resources", "driver", "api", "rpc", "method"),
    *("devices", "ids", "holders", "claim", "count", "seconds", "reason"),
)
"""The gateway's own fields, which come first, in this order; docs/reference/log.md explains them."""
IN_PROSE = frozenset({"driver", "rpc", "method", "holders", "claim", "count", "seconds", "reason"})
"""Fields that text omits from the gateway's own lines: the message, or the configuration, contains them already."""
DRIVERS = "dpgateway.driver."
"""Prefix of the drivers' logger names."""

LONGEST = 32 * 1024
"""Most characters of a message, of a field's value and of an exception."""
MOST_NAMED = 10
"""Names of a list in a line of text. JSON has all of them."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "exception"}


class _Fields(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        """The record's extra fields; FIELDS come first, in their order."""
        extra: Mapping[str, object] = {
            key: value
            for key, value in vars(record).items()
            if key not in _USUAL and key != "exception" and value is not None
        }
        known = {key: extra[key] for key in FIELDS if key in extra}
        return known | {encodable(shown(key)): value for key, value in extra.items() if key not in known}

    def exception(self, record: logging.LogRecord) -> str:
        made = getattr(record, "exception", None)  # a text, where a caller doesn't keep the exception
        if made is not None:
            return shown(made)
        parts = [self.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
        text = "\n".join(parts + ([self.formatStack(record.stack_info)] if record.stack_info else []))
        return text if len(text) <= LONGEST else f"... {text[-LONGEST:]}"  # the end names the error


class TextFormatter(_Fields):
    """``time LEVEL message key=value ...``, then the traceback, if any, on indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        name = shown(record.name)
        own = name.startswith("dpgateway.") and not name.startswith(DRIVERS)
        told = {key: value for key, value in self.fields(record).items() if not (own and key in IN_PROSE)}
        line = f"{timestamp(record)} {printable(shown(record.levelname)):<7} {printable(message(record))}"
        for key, value in told.items():
            if isinstance(value, list | tuple):
                more = len(value) - MOST_NAMED
                text = ",".join(map(shown, value[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
            else:
                text = shown(value)
            # A text that would look like several words is quoted.
            plain = text and not any(character in text for character in ' "=')
            line += f" {printable(key)}={printable(text if plain else json.dumps(text, ensure_ascii=False))}"
        exception = self.exception(record)
        return "\n    ".join([line, *map(printable, exception.split("\n"))] if exception else [line])


class JsonFormatter(_Fields):
    """One JSON object per line: ts (RFC 3339, UTC), level, logger, message, the fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "ts": timestamp(record),
            "level": encodable(shown(record.levelname).lower()),
            "logger": encodable(shown(record.name)),
            "message": encodable(message(record)),
        }
        fields = {key: value for key, value in self.fields(record).items() if key not in entry}
        for key, value in fields.items():
            if type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
                entry[key] = value
            elif isinstance(value, list | tuple):  # never cut
                entry[key] = [encodable(shown(item)) for item in value]
            else:
                entry[key] = encodable(shown(value))
        if exception := self.exception(record):
            entry["exception"] = encodable(exception)
        return json.dumps(entry)


def message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # a wrong format string must not cost the message
        text = f"{shown(record.msg)} {shown(record.args)}"
    return shown(text.rstrip("\n"))


def timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(value: object) -> str:
    try:
        text = str(value)
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}... and {len(text) - LONGEST} more characters"
    except BaseException as error:  # a driver may log any object
        return f"<{type(value).__name__} that can't be shown: {type(error).__name__}>"

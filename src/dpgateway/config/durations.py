"""Durations as people write them: ``500ms``, ``10s``, ``1m30s``, ``1.5h``."""

from __future__ import annotations

import re
from datetime import timedelta

from dpgateway.config.problems import Wrong, describe

EXPECTED = "a duration: a number and a unit (ms, s, m or h), like 30s or 1m30s"

_UNITS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}  # in µs, largest first
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit}(?![a-z]))?" for unit in _UNITS))
_WORD = re.compile(r"(milliseconds?|msecs?)|(seconds?|secs?)|(minutes?|mins?)|(hours?|hrs?)")
_UNIT_OF_WORD = ("", "ms", "s", "m", "h")  # by the group that matched
_BARE = re.compile(rf"{_NUMBER}")


def parse_duration(value: object) -> timedelta:
    """The duration that ``value`` spells: units from large to small, each at most once. Raises Wrong."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise Wrong(describe(value), EXPECTED, f"write {value}s" if value >= 0 else "a duration can't be negative")
    if not isinstance(value, str):
        raise Wrong(describe(value), EXPECTED)
    match = _DURATION.fullmatch(value)
    if not value or match is None:
        raise Wrong(describe(value), EXPECTED, _hint(value))
    parts = match.groupdict()
    microseconds = sum(_scaled(number, _UNITS[unit]) for unit, number in parts.items() if number is not None)
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise Wrong(describe(value), EXPECTED, "that is longer than any clock can count") from None


def _scaled(number: str, unit: int) -> int:
    """The product, rounded down: in integers, for 0.1 isn't a tenth in floating point."""
    whole, _, fraction = number.partition(".")
    return int(f"{whole}{fraction:0<6}") * unit // 1_000_000


def _hint(value: str) -> str:
    if _BARE.fullmatch(value):
        return f"write {value}s"
    compact = re.sub(r"\s+", "", value).lower()
    compact = _WORD.sub(lambda word: _UNIT_OF_WORD[word.lastindex or 0], compact)
    if compact and _DURATION.fullmatch(compact):
        return f"write {compact}"
    if value.startswith("-"):
        return "a duration can't be negative"
    return "a day is 24h" if re.search(r"[0-9]d", value) else ""


def format_duration(duration: timedelta) -> str:
    """The shortest spelling that :func:`parse_duration` reads back, to the millisecond: ``1m30s``."""
    milliseconds = duration // timedelta(milliseconds=1)
    text = ""
    for unit, microseconds in _UNITS.items():
        number, milliseconds = divmod(milliseconds, microseconds // 1_000)
        text += f"{number}{unit}" if number else ""
    return text or "0s"

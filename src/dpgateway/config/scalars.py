"""How each kind of value is read that has no values inside it, and how to write what was probably meant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

from dpgateway.config.kinds import Kind, name_kind
from dpgateway.config.problems import Wrong, did_you_mean
from dpgateway.config.spelling import parse_duration
from dpgateway.config.written import Written

YES, NO = frozenset({"yes", "on", "y", "true", "1"}), frozenset({"no", "off", "n", "false", "0"})
"""How people write booleans, some of them since YAML 1.1 allowed it; for hints."""


def _exactly(kind: type, written: Written) -> object:
    """The value if it is exactly a ``kind``: bool is a subclass of int, and YAML's types mean what they say."""
    if type(written.value) is kind:
        return written.value
    word = name_kind(kind)
    article = "" if kind is bool else "an " if word == "integer" else "a "
    raise Wrong(written.shown, article + word, _as_a(kind, written))


def _as_a(kind: type, written: Written) -> str:
    """How to write what was probably meant."""
    value = written.value
    if kind is str and isinstance(value, int | float):
        return f'put it in quotes: "{written.shown}"'
    if kind is int and isinstance(value, str) and value.isdecimal():
        return f"write {value}, without quotes"
    if kind is bool and str(value).lower() in YES | NO:
        return f"write {'true' if str(value).lower() in YES else 'false'}"
    return ""


def _number(written: Written) -> float:
    value = written.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(written.shown, "a number")
    return float(value)


def _path(written: Written) -> Path:
    value = written.value
    if not isinstance(value, str) or not value or "\0" in value:
        raise Wrong(written.shown, "a path")
    return Path(value)


def choice(kind: Kind, written: Written) -> object:
    """One of the values that ``kind``, a Literal, has."""
    choices = get_args(kind)
    for choice in choices:
        if type(written.value) is type(choice) and written.value == choice:
            return choice
    expected = name_kind(kind).replace(" | ", " or ")
    raise Wrong(written.shown, expected, did_you_mean(written.value, map(str, choices)))


SCALARS: Mapping[Kind, Callable[[Written], Any]] = {
    **{kind: partial(_exactly, kind) for kind in (str, int, bool)},
    float: _number,
    Path: _path,
    timedelta: lambda written: parse_duration(written.value),
    Any: Written.plain,
}
"""How each kind is read that has no values inside it."""

"""The types of a configuration's values: their names in errors, and the readers of scalars."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from dpgateway.config.problems import Wrong, did_you_mean
from dpgateway.config.source import Written
from dpgateway.config.spelling import parse_duration

Kind: TypeAlias = Any
"""A type or a typing form; these have no common type."""

WORDS: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "true or false",
    timedelta: "duration",
    Path: "path",
    Any: "anything",
    type(None): "null",
}
LISTS: Mapping[Kind, Callable[..., Any]] = {tuple: tuple, Sequence: tuple, list: list}
"""The result of a list."""
MAPPINGS: Mapping[Kind, Callable[..., Any]] = {Mapping: types.MappingProxyType, dict: dict}
"""The result of a mapping."""
YES, NO = frozenset({"yes", "on", "y", "true", "1"}), frozenset({"no", "off", "n", "false", "0"})
"""Booleans of YAML 1.1 and other languages, for hints."""


def name_kind(kind: Kind) -> str:
    """The name of a type in errors and `dpgateway drivers`: ``list of duration``. Raises TypeError for other types."""
    if kind in WORDS:
        return WORDS[kind]
    origin: object = get_origin(kind)
    arguments = get_args(kind)
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return " or ".join(name_kind(argument) for argument in sorted(arguments, key=lambda one: one is type(None)))
    if origin in LISTS and (origin is not tuple or arguments[1:] == (...,)):
        return "list" if arguments[0] is Any else f"list of {name_kind(arguments[0])}"
    if origin in MAPPINGS and arguments[0] is str:
        return "mapping" if arguments[1] is Any else f"mapping of {name_kind(arguments[1])}"
    if isinstance(kind, type) and is_dataclass(kind) and frozen(kind):
        return "mapping"
    raise TypeError(f"{getattr(kind, '__name__', kind)} isn't a type that a configuration can have")


def frozen(kind: type) -> bool:
    """Whether ``kind`` is a frozen dataclass."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return bool(parameters and parameters.frozen)


def _exactly(kind: type, written: Written) -> object:
    """The value if it is of this very type: bool is a subclass of int, and "2" is no integer."""
    value, hint = written.value, ""
    if type(value) is kind:
        return value
    if kind is str and isinstance(value, int | float):
        hint = f'put it in quotes: "{written.shown}"'
    elif kind is int and isinstance(value, str) and value.isdecimal():
        hint = f"write {value}, without quotes"
    elif kind is bool and str(value).lower() in YES | NO:
        hint = f"write {'true' if str(value).lower() in YES else 'false'}"
    word = name_kind(kind)
    article = "" if kind is bool else "an " if word == "integer" else "a "
    raise Wrong(written.shown, article + word, hint)


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
    """The value, one of the Literal ``kind``."""
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
"""The readers of types without inner values."""

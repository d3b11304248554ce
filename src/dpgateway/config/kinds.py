"""The types that a configuration can have, in its reader's words."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

Kind: TypeAlias = Any
"""A type, or one of typing's forms, which have no type in common."""

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
"""What a list becomes."""
MAPPINGS: Mapping[Kind, Callable[..., Any]] = {Mapping: types.MappingProxyType, dict: dict}
"""What a mapping becomes."""


def name_kind(kind: Kind) -> str:
    """How `dpgateway drivers` and errors name a type: ``list of duration``. Raises TypeError if it has no such name."""
    if kind in WORDS:
        return WORDS[kind]
    origin: object = get_origin(kind)
    arguments = get_args(kind)
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return " or ".join(name_kind(argument) for argument in sorted(arguments, key=lambda one: one is type(None)))
    if origin in LISTS and (origin is not tuple or arguments[1:] == (...,)):
        return _of("list", arguments[0])
    if origin in MAPPINGS and arguments[0] is str:
        return _of("mapping", arguments[1])
    if isinstance(kind, type) and is_dataclass(kind) and frozen(kind):
        return "mapping"
    raise TypeError(f"{getattr(kind, '__name__', kind)} isn't a type that a configuration can have")


def _of(container: str, item: Kind) -> str:
    return container if item is Any else f"{container} of {name_kind(item)}"


def frozen(kind: type) -> bool:
    """Whether ``kind`` is a frozen dataclass."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return bool(parameters and parameters.frozen)

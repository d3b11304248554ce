"""Plain values, as YAML and JSON have them, to typed ones, strictly: "2" is no integer, and true is none either.

cattrs builds the dataclasses and gathers the errors; the hooks here refuse what cattrs would convert.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import cattrs
from cattrs.errors import (
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, override

from dpgateway.config.files import Written
from dpgateway.config.kinds import LISTS, MAPPINGS, Kind, name_kind
from dpgateway.config.problems import Problem, Steps, Wrong, did_you_mean, key_path, shown
from dpgateway.config.spelling import parse_duration

T = TypeVar("T")
Fault = tuple[Steps, Wrong]
Hook = Callable[[Any, Any], Any]

YES, NO = frozenset({"yes", "on", "y", "true", "1"}), frozenset({"no", "off", "n", "false", "0"})
"""How people write booleans, some of them since YAML 1.1 allowed it; for hints."""

_INDEX = re.compile(r"\[(\d+)\]")
_NAMED = re.compile(r"(\w+)((?:\[\d+\])*)")


class NotStrict(ValueError):
    """A plain value isn't what it should be. ``faults``: all that is wrong with it, each with the way to it."""

    def __init__(self, faults: Collection[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{key_path(steps)}: {wrong}".removeprefix(": ") for steps, wrong in faults))


def from_plain(value: object, kind: type[T]) -> T:
    """``value``, as YAML or JSON has it, as a ``kind``: a frozen dataclass with types that ``Options`` may have.

    Nothing is converted. Raises ValueError with one line about all that is wrong: keys, what was found there and what
    was expected. An error of ``kind`` itself that is neither a ValueError nor a TypeError is raised as it is.
    """
    try:
        return _CONVERTER.structure(value, kind)
    except Exception as error:
        raise NotStrict([fault for steps, cause in _causes(error) for fault in _faults(cause, steps, value)]) from error


def typed(written: Written, kind: type[T], problems: list[Problem]) -> T | None:
    """``written`` as a ``kind``; or None, with everything that is wrong appended to ``problems``."""
    try:
        return from_plain(written.value, kind)
    except NotStrict as error:
        problems.extend(wrong.at(written.place(*steps)) for steps, wrong in error.faults)
        return None


def _causes(error: Exception, steps: Steps = ()) -> Iterator[tuple[Steps, Exception]]:
    plain: list[Exception] = []
    if isinstance(error, ClassValidationError):
        noted, plain = error.group_exceptions()
        for cause, note in noted:
            missing = Wrong("nothing", "a value, for this key has no default")
            yield from _causes(missing if isinstance(cause, KeyError) else cause, (*steps, note.name))
    elif isinstance(error, IterableValidationError):
        items, plain = error.group_exceptions()
        for cause, item in items:
            yield from _causes(cause, (*steps, item.index))
    elif isinstance(error, ExceptionGroup):
        plain = list(error.exceptions)
    elif isinstance(error, ValueError | TypeError | ForbiddenExtraKeysError):
        yield steps, error
    else:
        raise error
    for cause in plain:
        yield from _causes(cause, steps)


def _faults(cause: Exception, steps: Steps, value: object) -> Iterator[Fault]:
    if isinstance(cause, Wrong):
        yield steps, cause
    elif isinstance(cause, ForbiddenExtraKeysError):
        known = _keys(cause.cl)
        for key in cause.extra_fields:
            hint = did_you_mean(key, known) or getattr(cause.cl, "unknown_key", "")
            yield (*steps, key), Wrong("an unknown key", f"one of {', '.join(known)}", hint)
    else:
        named = _named_field(cause, steps, value)
        text = str(cause) or type(cause).__name__
        head, _, rest = text.partition(": ")
        told = rest if named and rest and " " not in head else text  # the key is said already
        yield (*steps, *named), Wrong(hint=told)


def _named_field(cause: Exception, steps: Steps, value: Any) -> Steps:  # noqa: ANN401  plain
    """The key that an error of ``__post_init__`` is about, if its text begins with one: ``baud: ...``, ``X.baud``,
    ``paths[0]: ...``.
    """
    for step in steps:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return ()
    words = str(cause).split()
    match = _NAMED.fullmatch(words[0].strip(":,'\"`").rpartition(".")[2]) if words else None
    if match is None or not isinstance(value, dict) or match[1] not in value:
        return ()
    return (match[1], *map(int, _INDEX.findall(match[2])))


def _scalar(value: object, kind: type) -> object:
    """``value`` if it is exactly a ``kind``: bool is a subclass of int, and YAML's types mean what they say."""
    if type(value) is kind:
        return value
    word = name_kind(kind)
    article = "" if kind is bool else "an " if word == "integer" else "a "
    raise Wrong(shown(value), article + word, _spelling(kind, value))


def _spelling(kind: type, value: object) -> str:
    """How to write what was probably meant."""
    if kind is str and isinstance(value, int | float):
        return f'put it in quotes: "{shown(value)}"'
    if kind is int and isinstance(value, str) and value.isdecimal():
        return f"write {value}, without quotes"
    if kind is bool and str(value).lower() in YES | NO:
        return f"write {'true' if str(value).lower() in YES else 'false'}"
    return ""


def _number(value: object, _: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(shown(value), "a number")
    return float(value)


def _path(value: object, _: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise Wrong(shown(value), "a path")
    return Path(value)


def _choice(value: object, kind: Kind) -> object:
    choices = get_args(kind)
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    raise Wrong(shown(value), name_kind(kind).replace(" | ", " or "), did_you_mean(value, map(str, choices)))


def _items(found: Iterator[tuple[object, object]], hook: Hook, kind: Kind) -> Iterator[tuple[object, Any]]:
    """Each of ``found`` structured, with all errors gathered under their indices."""
    errors: list[Exception] = []
    for index, value in found:
        try:
            yield index, hook(value, kind)
        except Exception as error:
            error.add_note(IterableValidationNote(f"at {index!r}", index, kind))  # type: ignore[arg-type]
            errors.append(error)
    if errors:
        raise IterableValidationError("not what was expected", errors, kind)


def _list(kind: Kind, converter: cattrs.BaseConverter) -> Hook:
    item = get_args(kind)[0]
    inner = converter.get_structure_hook(item)
    make = LISTS[get_origin(kind)]

    def hook(value: object, _: object) -> object:
        if value is not None and not isinstance(value, list):
            raise Wrong(shown(value), f"a {name_kind(kind)}", _itemised(value, item))
        return make(one for _, one in _items(iter(enumerate(value or ())), inner, item))

    return hook


def _itemised(value: object, item: Kind) -> str:
    """How to make a list of what isn't one."""
    if isinstance(value, str | int | float) and item is not Any:
        return f"write [{shown(value)}]"
    return "begin each of its items with '- '" if isinstance(value, dict) else ""


def _mapping(kind: Kind, converter: cattrs.BaseConverter) -> Hook:
    item = get_args(kind)[1]
    inner = converter.get_structure_hook(item)
    make = MAPPINGS[get_origin(kind)]

    def one(pair: tuple[object, object], _: object) -> object:
        key, value = pair
        if not isinstance(key, str):
            raise Wrong(f"the key {shown(key)}", "keys that are strings", f'put it in quotes: "{shown(key)}"')
        return inner(value, item)

    def hook(value: object, _: object) -> object:
        if value is not None and not isinstance(value, dict):
            hint = "write 'key: value' lines, without '- '" if isinstance(value, list) else ""
            raise Wrong(shown(value), f"a {name_kind(kind)}", hint)
        pairs = {key: (key, found) for key, found in (value or {}).items()}
        return make(dict(_items(iter(pairs.items()), one, item)))

    return hook


def _dataclass(kind: Kind, converter: cattrs.BaseConverter) -> Hook:
    changed = {
        field.name: override(struct_hook=_field(field, converter))
        for field in fields(kind)
        if {"check", "expand"} & field.metadata.keys()
    }
    build = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **changed)  # type: ignore[arg-type]

    def hook(value: object, _: object) -> object:
        if value is not None and not isinstance(value, dict):
            keys = ", ".join(_keys(kind))
            raise Wrong(shown(value), f"a mapping with the keys {keys}" if keys else "an empty mapping")
        return build(value or {}, kind)

    return hook


def _field(field: Field[Any], converter: cattrs.BaseConverter) -> Hook:
    expand, check = (field.metadata.get(name, lambda value: value) for name in ("expand", "check"))
    return lambda value, kind: check(converter.structure(expand(value), kind))


def _keys(kind: Kind) -> list[str]:
    return [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else []


def _made_of(kind: Kind, origins: Collection[Kind]) -> bool:
    return get_origin(kind) in origins


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True, forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _scalar)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(Path, _path)
    converter.register_structure_hook(timedelta, lambda value, _: parse_duration(value))
    converter.register_structure_hook_func(lambda kind: _made_of(kind, (Literal,)), _choice)
    converter.register_structure_hook_factory(lambda kind: _made_of(kind, LISTS), _list)
    converter.register_structure_hook_factory(lambda kind: _made_of(kind, MAPPINGS), _mapping)
    converter.register_structure_hook_factory(lambda kind: isinstance(kind, type) and is_dataclass(kind), _dataclass)
    return converter


_CONVERTER = _converter()

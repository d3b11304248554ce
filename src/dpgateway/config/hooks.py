"""How each type is read, strictly: "2" is no integer, true is no integer, and a string is no list.

cattrs builds the dataclasses and gathers the errors; the hooks here refuse what cattrs would convert.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import cattrs
from cattrs.errors import IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from dpgateway.config.durations import parse_duration
from dpgateway.config.kinds import LISTS, MAPPINGS, Kind, name_kind
from dpgateway.config.problems import Wrong, describe, did_you_mean
from dpgateway.config.values import Shares, check_shares

Hook = Callable[[Any, Any], Any]

YES, NO = frozenset({"yes", "on", "y", "true", "1"}), frozenset({"no", "off", "n", "false", "0"})
"""How people write booleans, some of them since YAML 1.1 allowed it; for hints."""


def _scalar(kind: type, value: object) -> object:
    """``value`` if it is exactly a ``kind``: bool is a subclass of int, and YAML's types mean what they say."""
    if type(value) is kind:
        return value
    word = name_kind(kind)
    article = "" if kind is bool else "an " if word == "integer" else "a "
    raise Wrong(describe(value), article + word, _spelling(kind, value))


def _spelling(kind: type, value: object) -> str:
    """How to write what was probably meant."""
    if kind is str and isinstance(value, int | float):
        return f'put it in quotes: "{describe(value)}"'
    if kind is int and isinstance(value, str) and value.isdecimal():
        return f"write {value}, without quotes"
    if kind is bool and str(value).lower() in YES | NO:
        return f"write {'true' if str(value).lower() in YES else 'false'}"
    return ""


def _number(value: object, _: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(describe(value), "a number")
    return float(value)


def _path(value: object, _: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise Wrong(describe(value), "a path")
    return Path(value)


def _literal(kind: Kind) -> Hook:
    choices = get_args(kind)

    def hook(value: object, _: object) -> object:
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise Wrong(describe(value), name_kind(kind).replace(" | ", " or "), did_you_mean(value, map(str, choices)))

    return hook


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


def _sequence(kind: Kind, converter: cattrs.BaseConverter) -> Hook:
    item = get_args(kind)[0]
    inner = converter.get_structure_hook(item)
    make = LISTS[get_origin(kind)]

    def hook(value: object, _: object) -> object:
        if value is not None and not isinstance(value, list):
            raise Wrong(describe(value), f"a {name_kind(kind)}", _itemised(value, item))
        return make(one for _, one in _items(iter(enumerate(value or ())), inner, item))

    return hook


def _itemised(value: object, item: Kind) -> str:
    """How to make a list of what isn't one."""
    if isinstance(value, str | int | float) and item is not Any:
        return f"write [{describe(value)}]"
    return "begin each of its items with '- '" if isinstance(value, dict) else ""


def _mapping(kind: Kind, converter: cattrs.BaseConverter) -> Hook:
    item = get_args(kind)[1]
    inner = converter.get_structure_hook(item)
    make = MAPPINGS[get_origin(kind)]

    def one(pair: tuple[object, object], _: object) -> object:
        key, value = pair
        if not isinstance(key, str):
            raise Wrong(f"the key {describe(key)}", "keys that are strings", f'put it in quotes: "{describe(key)}"')
        return inner(value, item)

    def hook(value: object, _: object) -> object:
        if value is not None and not isinstance(value, dict):
            raise Wrong(describe(value), f"a {name_kind(kind)}", _keyed(value))
        pairs = {key: (key, found) for key, found in (value or {}).items()}
        return make(dict(_items(iter(pairs.items()), one, item)))

    return hook


def _keyed(value: object) -> str:
    """How to make a mapping of what isn't one."""
    return "write 'key: value' lines, without '- '" if isinstance(value, list) else ""


def _checked(field: Field[Any], converter: cattrs.BaseConverter) -> Hook:
    check = field.metadata["check"]
    return lambda value, kind: check(converter.structure(value, kind))


def _dataclass(kind: Kind, converter: cattrs.BaseConverter) -> Hook:
    checks = {
        field.name: override(struct_hook=_checked(field, converter))
        for field in fields(kind)
        if "check" in field.metadata
    }
    build = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **checks)  # type: ignore[arg-type]

    def hook(value: object, _: object) -> object:
        if value is not None and not isinstance(value, dict):
            raise Wrong(describe(value), f"a mapping with the keys {', '.join(field.name for field in fields(kind))}")
        return build(value or {}, kind)

    return hook


def _shares(converter: cattrs.BaseConverter) -> Hook:
    whole = _dataclass(Shares, converter)

    def hook(value: object, kind: object) -> object:
        if type(value) is int:
            return Shares(check_shares(value))
        if not isinstance(value, dict):
            raise Wrong(describe(value), "an integer, or a mapping with the keys count, distinct")
        return whole(value, kind)

    return hook


def _made_of(kind: Kind, origins: Collection[Kind]) -> bool:
    return get_origin(kind) in origins


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True, forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, lambda value, kind: _scalar(kind, value))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(Path, _path)
    converter.register_structure_hook(timedelta, lambda value, _: parse_duration(value))
    converter.register_structure_hook_factory(lambda kind: _made_of(kind, (Literal,)), _literal)
    converter.register_structure_hook_factory(lambda kind: _made_of(kind, LISTS), _sequence)
    converter.register_structure_hook_factory(lambda kind: _made_of(kind, MAPPINGS), _mapping)
    converter.register_structure_hook_factory(lambda kind: isinstance(kind, type) and is_dataclass(kind), _dataclass)
    converter.register_structure_hook(Shares, _shares(converter))
    return converter


CONVERTER = _converter()

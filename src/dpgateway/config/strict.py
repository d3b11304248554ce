"""Plain values, as YAML and JSON have them, to typed ones, with all that is wrong at once.

Nothing is converted: "2" is no integer, and neither is true. Which types there are is in ``dpgateway.config.kinds``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dpgateway.config.files import Written
from dpgateway.config.kinds import LISTS, MAPPINGS, Kind, name_kind
from dpgateway.config.problems import Problem, Steps, Wrong, did_you_mean, key_path, shown
from dpgateway.config.spelling import parse_duration

T = TypeVar("T")
Fault = tuple[Steps, Wrong]

YES, NO = frozenset({"yes", "on", "y", "true", "1"}), frozenset({"no", "off", "n", "false", "0"})
"""How people write booleans, some of them since YAML 1.1 allowed it; for hints."""

_INDEX = re.compile(r"\[(\d+)\]")
_NAMED = re.compile(r"(\w+)((?:\[\d+\])*)")


class Unfit(ValueError):
    """A plain value isn't what it should be. ``faults``: all that is wrong with it, each with the way to it."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        super().__init__("; ".join(": ".join(filter(None, (key_path(steps), str(wrong)))) for steps, wrong in faults))


def from_plain(value: object, kind: type[T]) -> T:
    """``value`` as a ``kind``, a frozen dataclass. Raises Unfit; see ``dpgateway.from_plain``."""
    reader = _Reader()
    result: T = reader.read(value, kind, ())
    if reader.faults:
        raise Unfit(reader.faults)
    return result


def typed(written: Written, kind: type[T], problems: list[Problem]) -> T | None:
    """``written`` as a ``kind``; or None, with everything that is wrong appended to ``problems``."""
    try:
        return from_plain(written.value, kind)
    except Unfit as error:
        problems.extend(wrong.at(written.place(*steps)) for steps, wrong in error.faults)
        return None


class _Reader:
    """Reads one value and all that is in it. What it returns means nothing once there are ``faults``."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def read(self, value: Any, kind: Kind, steps: Steps, about: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        """``about``: the metadata of the field that is read."""
        expand, check = ((about or {}).get(name, lambda same: same) for name in ("expand", "check"))
        before = len(self.faults)
        try:
            result = self._read(expand(value), kind, steps)
            return check(result) if len(self.faults) == before else None
        except Wrong as wrong:
            self.faults.append((steps, wrong))

    def _read(self, value: Any, kind: Kind, steps: Steps) -> Any:  # noqa: ANN401
        origin: Any = get_origin(kind)
        if kind in SCALARS:
            return SCALARS[kind](value)
        if origin is Literal:
            return _choice(value, kind)
        if origin in (Union, UnionType):
            (inner,) = (one for one in get_args(kind) if one is not NoneType)
            return None if value is None else self._read(value, inner, steps)
        if origin in LISTS:
            return LISTS[origin](self._items(value, kind, steps))
        if origin in MAPPINGS:
            return MAPPINGS[origin](dict(self._pairs(value, kind, steps)))
        if is_dataclass(kind):
            return self._object(value, kind, steps)
        raise TypeError(name_kind(kind))

    def _items(self, value: Any, kind: Kind, steps: Steps) -> Iterator[object]:  # noqa: ANN401
        item = get_args(kind)[0]
        if value is not None and not isinstance(value, list):
            raise Wrong(shown(value), f"a {name_kind(kind)}", _as_a_list(value, item))
        for index, inner in enumerate(value or ()):
            yield self.read(inner, item, (*steps, index))

    def _pairs(self, value: Any, kind: Kind, steps: Steps) -> Iterator[tuple[object, object]]:  # noqa: ANN401
        if value is not None and not isinstance(value, dict):
            hint = "write 'key: value' lines, without '- '" if isinstance(value, list) else ""
            raise Wrong(shown(value), f"a {name_kind(kind)}", hint)
        for key, inner in (value or {}).items():
            if isinstance(key, str):
                yield key, self.read(inner, get_args(kind)[1], (*steps, key))
            else:
                quoted = f'put it in quotes: "{shown(key)}"'
                self.faults.append(((*steps, key), Wrong(f"the key {shown(key)}", "keys that are strings", quoted)))

    def _object(self, value: Any, kind: Any, steps: Steps) -> object:  # noqa: ANN401
        known = {field.name: field for field in fields(kind) if field.init}
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise Wrong(shown(value), f"a mapping with the keys {', '.join(known)}" if known else "an empty mapping")
        before, kinds = len(self.faults), _kinds(kind)
        self.faults += [((*steps, key), _unknown(key, kind, list(known))) for key in value if key not in known]
        given = {}
        for name, field in known.items():
            if name in value:
                given[name] = self.read(value[name], kinds[name], (*steps, name), field.metadata)
            elif field.default is MISSING and field.default_factory is MISSING:
                self.faults.append(((*steps, name), Wrong("nothing", "a value, because this key has no default")))
        return self._made(kind, given, value, steps) if len(self.faults) == before else None

    def _made(self, kind: Any, given: dict[str, Any], value: dict[object, Any], steps: Steps) -> object:  # noqa: ANN401
        try:
            return kind(**given)
        except Exception as error:
            for cause in _causes(error):
                if not isinstance(cause, ValueError | TypeError):
                    raise cause from error
                named, wrong = _explained(cause, value)
                self.faults.append(((*steps, *named), wrong))
            return None


@cache
def _kinds(kind: type) -> dict[str, Kind]:
    """The kinds of a dataclass's fields. Cached, because each text in an annotation is compiled again."""
    return get_type_hints(kind)


def _unknown(key: object, kind: Any, known: list[str]) -> Wrong:  # noqa: ANN401
    hint = did_you_mean(key, known) or getattr(kind, "unknown_key", "")
    return Wrong("an unknown key", f"one of {', '.join(known)}", hint)


def _causes(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error


def _explained(error: Exception, value: dict[object, Any]) -> Fault:
    """What ``__post_init__`` raised, at the key that its text begins with, if it does: ``baud: ...``, ``X.baud``,
    ``paths[0]: ...``.
    """
    text = str(error) or type(error).__name__
    words = text.split()
    match = _NAMED.fullmatch(words[0].strip(":,'\"`").rpartition(".")[2]) if words else None
    if match is None or match[1] not in value:
        return (), Wrong(hint=text)
    head, _, rest = text.partition(": ")
    told = rest if rest and " " not in head else text  # the place says the key already
    return (match[1], *map(int, _INDEX.findall(match[2]))), Wrong(hint=told)


def _exactly(kind: type, value: object) -> object:
    """``value`` if it is exactly a ``kind``: bool is a subclass of int, and YAML's types mean what they say."""
    if type(value) is kind:
        return value
    word = name_kind(kind)
    article = "" if kind is bool else "an " if word == "integer" else "a "
    raise Wrong(shown(value), article + word, _as_a(kind, value))


def _as_a(kind: type, value: object) -> str:
    """How to write what was probably meant."""
    if kind is str and isinstance(value, int | float):
        return f'put it in quotes: "{shown(value)}"'
    if kind is int and isinstance(value, str) and value.isdecimal():
        return f"write {value}, without quotes"
    if kind is bool and str(value).lower() in YES | NO:
        return f"write {'true' if str(value).lower() in YES else 'false'}"
    return ""


def _as_a_list(value: object, item: Kind) -> str:
    if isinstance(value, str | int | float) and item is not Any:
        return f"write [{shown(value)}]"
    return "begin each of its items with '- '" if isinstance(value, dict) else ""


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(shown(value), "a number")
    return float(value)


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise Wrong(shown(value), "a path")
    return Path(value)


def _choice(value: object, kind: Kind) -> object:
    choices = get_args(kind)
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    raise Wrong(shown(value), name_kind(kind).replace(" | ", " or "), did_you_mean(value, map(str, choices)))


SCALARS: Mapping[Kind, Callable[[Any], Any]] = {
    **{kind: partial(_exactly, kind) for kind in (str, int, bool)},
    float: _number,
    Path: _path,
    timedelta: parse_duration,
    Any: lambda value: value,
}
"""How each kind is read that has no values inside it."""

"""Plain values, as YAML and JSON have them, to typed ones, with all that is wrong at once.

Nothing is converted: "2" is no integer, and neither is true. Which types there are is in ``dpgateway.config.kinds``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dpgateway.config.kinds import LISTS, MAPPINGS, Kind, name_kind
from dpgateway.config.problems import LONGEST_TEXT, Place, Problem, Wrong, did_you_mean, missing_space, shortened
from dpgateway.config.spelling import parse_duration
from dpgateway.config.written import Written, unplaced

T = TypeVar("T")

NOTHING: Mapping[str, Any] = MappingProxyType({})
YES, NO = frozenset({"yes", "on", "y", "true", "1"}), frozenset({"no", "off", "n", "false", "0"})
"""How people write booleans, some of them since YAML 1.1 allowed it; for hints."""

_INDEX = re.compile(r"\[(\d+)\]")
_EXPECTED = re.compile(r"expected (.+?)(?:, found (.+))?")
_WORD = re.compile(r"\w+")
_NAMED = re.compile(r"(\w+)((?:\[\d+\])*)")


def from_plain(value: object, kind: type[T]) -> T:
    """``value`` as a ``kind``, a frozen dataclass. Raises ValueError; see ``dpgateway.from_plain``."""
    problems: list[Problem] = []
    result = typed(unplaced(value), kind, problems)
    if result is None:
        raise ValueError("; ".join(map(str, problems)))
    return result


def typed(written: Written, kind: type[T], problems: list[Problem]) -> T | None:
    """``written`` as a ``kind``, a dataclass; or None, with everything that is wrong appended to ``problems``."""
    reader = _Reader()
    result: T = reader.read(written, kind)
    problems.extend(reader.problems)
    return None if reader.problems else result


class _Reader:
    """Reads one value and all that is in it. What it returns means nothing once there are ``problems``."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, written: Written, kind: Kind, about: Mapping[str, Any] = NOTHING) -> Any:  # noqa: ANN401
        """``about``: the metadata of the field that is read."""
        before = len(self.problems)
        self.problems += written.problems
        if written.problems and written.value is None:
            return None
        try:
            result = self._read(_in_full(written, about), kind)
            return about["check"](result) if "check" in about and len(self.problems) == before else result
        except Wrong as wrong:
            self.problems.append(wrong.at(written.place))
            return None

    def _read(self, written: Written, kind: Kind) -> Any:  # noqa: ANN401
        origin: Any = get_origin(kind)
        if kind is Any:
            self.problems += [problem for part in written.parts() if part is not written for problem in part.problems]
        if kind in SCALARS or origin is Literal:
            return SCALARS.get(kind, partial(_choice, kind))(written)
        if origin in (Union, UnionType):
            (inner,) = (one for one in get_args(kind) if one is not NoneType)
            return None if written.value is None else self._read(written, inner)
        if origin in LISTS:
            return LISTS[origin](self._items(written, kind))
        if origin in MAPPINGS:
            return MAPPINGS[origin](dict(self._pairs(written, kind)))
        if is_dataclass(kind):
            return self._object(_as_mapping(written, kind), kind)
        raise TypeError(name_kind(kind))

    def _items(self, written: Written, kind: Kind) -> Iterator[object]:
        item = get_args(kind)[0]
        if not isinstance(written.value, list | None):
            raise Wrong(written.shown, f"a {name_kind(kind)}", _as_a_list(written, item))
        for inner in written.value or ():
            yield self.read(inner, item)

    def _pairs(self, written: Written, kind: Kind) -> Iterator[tuple[object, object]]:
        if not isinstance(written.value, dict | None):
            hint = "write 'key: value' lines, without '- '" if isinstance(written.value, list) else spaced(written)
            raise Wrong(written.shown, f"a {name_kind(kind)}", hint)
        for key, inner in (written.value or {}).items():
            yield key, self.read(inner, get_args(kind)[1])

    def _object(self, written: Written, kind: Any) -> object:  # noqa: ANN401
        known = {field.name: field for field in fields(kind) if field.init}
        if not isinstance(written.value, dict | None):
            keys = f"a mapping with the keys {', '.join(known)}" if known else "an empty mapping"
            raise Wrong(written.shown, keys, spaced(written) or getattr(kind, "unknown_key", ""))
        value, kinds = written.value or {}, _kinds(kind)
        before = len(self.problems)
        self.problems += [_unknown(key, kind, list(known)).at(value[key].place) for key in value if key not in known]
        given: dict[str, Any] = {}
        required = {name for name, field in known.items() if field.default is field.default_factory is MISSING}
        for name, field in known.items():
            already = len(self.problems)
            if name in value:
                result = self.read(value[name], kinds[name], field.metadata)
                if len(self.problems) == already:
                    given[name] = result
            elif name in required:
                nothing = Wrong("nothing", "a value, because this key has no default", field.metadata.get("hint", ""))
                self.problems.append(nothing.at(written.place.below(name)))
        if len(self.problems) == before:
            return self._made(kind, given, written)
        if required <= given.keys():
            self._doubts(kind, given, written, known.keys() - given.keys())
        return None

    def _made(self, kind: Any, given: dict[str, Any], written: Written) -> object:  # noqa: ANN401
        try:
            return kind(**given)
        except Exception as error:
            for cause in _causes(error):
                if not isinstance(cause, ValueError | TypeError):
                    raise cause from error
                self.problems.append(told(str(cause) or type(cause).__name__, written))
            return None

    def _doubts(self, kind: Any, given: dict[str, Any], written: Written, others: Set[str]) -> None:  # noqa: ANN401
        """What ``kind`` says of the keys that are right, when others are wrong: all is told at once.

        It is made with the defaults of the ``others``, so what it says of them, or of all together, means nothing.
        """
        try:
            kind(**given)
        except Exception as error:
            for cause in _causes(error):
                problem = told(str(cause), written)
                if problem.place != written.place and others.isdisjoint(_WORD.findall(str(cause))):
                    self.problems.append(problem)


def _in_full(written: Written, about: Mapping[str, Any]) -> Written:
    """The long form of a value whose field has a short one: see the fields of ``dpgateway.config.values``."""
    if about.get("single") and not isinstance(written.value, list | None):
        return Written([written], written.place)
    expanded: Written = about["expand"](written) if "expand" in about else written
    return expanded


def _as_mapping(written: Written, kind: Any) -> Written:  # noqa: ANN401
    """What isn't a mapping, for a dataclass with a short form, is meant for the field that ``short_form`` names."""
    name = getattr(kind, "short_form", None)
    if name is None or isinstance(written.value, dict | None):
        return written
    return Written({name: written}, written.place)


@cache
def _kinds(kind: type) -> dict[str, Kind]:
    """The kinds of a dataclass's fields. Cached, because each text in an annotation is compiled again."""
    return get_type_hints(kind)


def _unknown(key: str, kind: Any, known: list[str]) -> Wrong:  # noqa: ANN401
    hint = missing_space(key) or did_you_mean(key, known) or getattr(kind, "unknown_key", "")
    return Wrong("an unknown key", f"one of {', '.join(known)}", hint)


def _causes(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error


def told(text: str, written: Written) -> Problem:
    """What a dataclass says of ``written``, at the key that the text begins with, if it does: ``baud: ...``,
    ``X.baud``, ``paths[0]: ...``. Of ``expected ..., found ...`` the parts are taken.
    """
    text = " ".join(text.split())
    words = text.split()
    match = _NAMED.fullmatch(words[0].strip(":,'\"`").rpartition(".")[2]) if words else None
    if match is None or not written.below(match[1]):
        return _in_parts(text, written.place, "")
    head, _, rest = text.partition(": ")
    about = rest if rest and " " not in head else text  # the place says the key already
    steps = (match[1], *map(int, _INDEX.findall(match[2])))
    part = written.part(*steps)
    return _in_parts(about, part.place, part.shown if part.value is not None else "")


def _in_parts(text: str, place: Place, found: str) -> Problem:
    match = _EXPECTED.fullmatch(text)
    if match is None:
        return Problem(place, found, hint=shortened(text, LONGEST_TEXT))
    return Problem(place, shortened(match[2] or found, LONGEST_TEXT), shortened(match[1], LONGEST_TEXT))


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


def spaced(written: Written) -> str:
    """A hint for a mapping whose only key has no space after its colon."""
    return missing_space(written.value) if isinstance(written.value, str) else ""


def _as_a_list(written: Written, item: Kind) -> str:
    if isinstance(written.value, str | int | float) and item is not Any:
        return f"write [{written.shown}]"
    return "begin each of its items with '- '" if isinstance(written.value, dict) else ""


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


def _choice(kind: Kind, written: Written) -> object:
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

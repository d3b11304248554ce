"""Converts plain values of YAML or JSON to dataclasses, and collects all errors.

Scalars aren't converted: neither "2" nor true is an integer. The types are those of ``dpgateway.config.scalars``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dpgateway.config.problems import Problem, Wrong, did_you_mean, missing_space
from dpgateway.config.scalars import LISTS, MAPPINGS, SCALARS, Kind, choice, name_kind
from dpgateway.config.source import Written, refusal, unplaced

T = TypeVar("T")

NOTHING: Mapping[str, Any] = MappingProxyType({})

_WORD = re.compile(r"\w+")


def from_plain(value: object, kind: type[T]) -> T:
    """``value`` as a ``kind``, a frozen dataclass. Raises ValueError; see ``dpgateway.from_plain``."""
    problems: list[Problem] = []
    result = typed(unplaced(value), kind, problems)
    if result is None:
        raise ValueError("; ".join(map(str, problems)))
    return result


def typed(written: Written, kind: type[T], problems: list[Problem], about: Mapping[str, Any] = NOTHING) -> T | None:
    """``written`` as a ``kind``; or None, with all errors appended to ``problems``.

    ``about``: the metadata of the field, see ``dpgateway.config.values``.
    """
    reader = _Reader()
    result: T = reader.read(written, kind, about)
    problems.extend(reader.problems)
    return None if reader.problems else result


class _Reader:
    """Reads one value with its inner values. The result is undefined once there are ``problems``.

    An error doesn't stop the reading, so that one run reports all of them. Each method compares the number of problems
    before and after an inner value to see whether that value is usable.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, written: Written, kind: Kind, about: Mapping[str, Any] = NOTHING) -> Any:  # noqa: ANN401
        before = len(self.problems)
        self.problems += written.problems
        if written.problems and written.value is None:
            return None

        # The short form of a value is expanded: see ``dpgateway.config.values``. A check assumes a valid value, so it
        # runs only if the inner values had no errors.
        try:
            full = written
            if about.get("single") and not isinstance(written.value, list | None):
                full = Written([written], written.place)
            elif "expand" in about:
                full = about["expand"](written)
            result = self._read(full, kind)
            if result is not None and "check" in about and len(self.problems) == before:
                return about["check"](result)
        except Wrong as wrong:
            self.problems.append(wrong.at(written.place))
            return None
        return result

    def _read(self, written: Written, kind: Kind) -> Any:  # noqa: ANN401
        origin: Any = get_origin(kind)
        if kind is Any:
            self.problems += [problem for part in written.parts() if part is not written for problem in part.problems]
        if kind in SCALARS:
            return SCALARS[kind](written)
        if origin is Literal:
            return choice(kind, written)
        if origin in (Union, UnionType):
            (inner,) = (one for one in get_args(kind) if one is not NoneType)
            return None if written.value is None else self._read(written, inner)
        if origin in LISTS:
            item = get_args(kind)[0]
            if not isinstance(written.value, list | None):
                hint = "begin each of its items with '- '" if isinstance(written.value, dict) else ""
                if isinstance(written.value, str | int | float) and item is not Any:
                    hint = f"write [{written.shown}]"
                raise Wrong(written.shown, f"a {name_kind(kind)}", hint)
            return LISTS[origin]([self.read(one, item) for one in written.value or ()])
        if origin in MAPPINGS:
            if not isinstance(written.value, dict | None):
                dashes = "write 'key: value' lines, without '- '" if isinstance(written.value, list) else ""
                raise Wrong(written.shown, f"a {name_kind(kind)}", dashes or missing_space(written.value))
            item = get_args(kind)[1]
            return MAPPINGS[origin]({key: self.read(one, item) for key, one in (written.value or {}).items()})
        if is_dataclass(kind):
            return self._object(written, kind)
        raise TypeError(name_kind(kind))

    def _object(self, written: Written, kind: Any) -> object:  # noqa: ANN401
        # The short form of a dataclass is the value of its field ``short_form``.
        known, short = {field.name: field for field in fields(kind) if field.init}, getattr(kind, "short_form", None)
        if short is not None and not isinstance(written.value, dict | None):
            written = Written({short: written}, written.place)
        if not isinstance(written.value, dict | None):
            keys = f"a mapping with the keys {', '.join(known)}" if known else "an empty mapping"
            raise Wrong(written.shown, keys, missing_space(written.value) or getattr(kind, "unknown_key", ""))
        before = len(self.problems)
        for key, value in (written.value or {}).items():
            if key not in known:
                hint = missing_space(key) or did_you_mean(key, known) or getattr(kind, "unknown_key", "")
                self.problems.append(Wrong("an unknown key", f"one of {', '.join(known)}", hint).at(value.place))

        # The valid fields.
        given: dict[str, Any] = {}
        kinds = _kinds(kind)
        required = {name for name, field in known.items() if field.default is field.default_factory is MISSING}
        for name, field in known.items():
            problems = len(self.problems)
            if value := written.below(name):
                result = self.read(value, kinds[name], field.metadata)
                if len(self.problems) == problems:
                    given[name] = result
            elif name in required:
                nothing = Wrong("nothing", "a value, because this key has no default", field.metadata.get("hint", ""))
                self.problems.append(nothing.at(written.place.below(name)))

        # With errors the object is still made, from the valid keys, only to collect the constructor's errors as well.
        if len(self.problems) == before:
            return self._made(kind, given, written)
        if required <= given.keys():
            self._made(kind, given, written, known.keys() - given.keys())
        return None

    def _made(
        self,
        kind: Any,  # noqa: ANN401
        given: dict[str, Any],
        written: Written,
        wrong: Set[str] | None = None,
    ) -> object:
        """The ``kind``, unless its constructor refuses the fields.

        ``wrong``: keys with errors. The object is then made with their defaults, only to collect the errors of other
        keys; those that name one of these keys, or no key, are dropped.
        """
        try:
            return kind(**given)
        except Exception as error:
            for cause in causes(error):
                if wrong is None and not isinstance(cause, ValueError | TypeError):
                    raise cause from error
                text = str(cause) or type(cause).__name__
                problem = refusal(text, written)
                if wrong is None or (problem.place != written.place and wrong.isdisjoint(_WORD.findall(text))):
                    self.problems.append(problem)
            return None


@cache
def _kinds(kind: type) -> dict[str, Kind]:
    """The types of a dataclass's fields. Cached, because annotations are strings, compiled at each call."""
    return get_type_hints(kind)


def causes(error: Exception) -> Iterator[Exception]:
    """The exceptions of a group, or the one that isn't a group."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from causes(inner)
    else:
        yield error

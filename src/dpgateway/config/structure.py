"""From a file's plain values to typed ones, and from cattrs' errors to problems with their places, all at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError

from dpgateway.config.hooks import CONVERTER
from dpgateway.config.located import Mapped, locate
from dpgateway.config.problems import Problem, Wrong, did_you_mean

T = TypeVar("T")
Steps = tuple[object, ...]

_ELSEWHERE = "the driver's own keys belong under options"
_INDEX = re.compile(r"\[(\d+)\]")
_NAMED = re.compile(r"(\w+)((?:\[\d+\])*)")


def structure(tree: Mapped, kind: type[T], problems: list[Problem]) -> T | None:
    """``tree`` as a ``kind``; or None, with everything that is wrong appended to ``problems``.

    An error that is neither a ValueError nor a TypeError is a bug of ``kind`` and is raised as it is.
    """
    try:
        return CONVERTER.structure(tree, kind)
    except Exception as error:
        for path, cause in _causes(error, ()):
            if not isinstance(cause, ValueError | TypeError | ForbiddenExtraKeysError):
                raise cause from error
            problems.extend(_problems(cause, path, tree))
        return None


def _causes(error: Exception, path: Steps) -> Iterator[tuple[Steps, Exception]]:
    if isinstance(error, ClassValidationError):
        noted, plain = error.group_exceptions()
        for cause, note in noted:
            missing = Wrong("nothing", "a value, for this key has no default")
            yield from _causes(missing if isinstance(cause, KeyError) else cause, (*path, note.name))
    elif isinstance(error, IterableValidationError):
        items, plain = error.group_exceptions()
        for cause, item in items:
            yield from _causes(cause, (*path, item.index))
    elif isinstance(error, ExceptionGroup):
        plain = list(error.exceptions)
    else:
        yield path, error
        return
    for cause in plain:
        yield from _causes(cause, path)


def _problems(cause: Exception, path: Steps, tree: Mapped) -> Iterator[Problem]:
    if isinstance(cause, Wrong):
        yield cause.at(locate(tree, path))
    elif isinstance(cause, ForbiddenExtraKeysError):
        known = [field.name for field in fields(cause.cl)] if is_dataclass(cause.cl) else []
        for key in cause.extra_fields:
            hint = did_you_mean(key, known) or (_ELSEWHERE if "driver" in known else "")
            yield Wrong("an unknown key", f"one of {', '.join(known)}", hint).at(locate(tree, (*path, key)))
    else:
        named = _named_field(cause, path, tree)
        place = locate(tree, (*path, *named))
        text = str(cause) or type(cause).__name__
        head, _, rest = text.partition(": ")
        if named and rest and " " not in head:  # the key is said already
            text = rest
        yield Problem(place.file, place.line, place.column, place.key, hint=text)


def _named_field(cause: Exception, path: Steps, tree: Mapped) -> Steps:
    """The key that an error of ``__post_init__`` is about, if its text begins with one: ``baud: ...``, ``X.baud``,
    ``paths[0]: ...``.
    """
    here: Any = tree
    for step in path:
        try:
            here = here[step]
        except (LookupError, TypeError):
            return ()
    words = str(cause).split()
    match = _NAMED.fullmatch(words[0].strip(":,'\"`").rpartition(".")[2]) if words else None
    if match is None or not isinstance(here, Mapped) or match[1] not in here:
        return ()
    return (match[1], *map(int, _INDEX.findall(match[2])))

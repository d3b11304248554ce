"""Globs over names and values, and regular expressions over untrusted output of devices and tools. Pure.

A plugged-in stick chooses its own product string. A backtracking engine such as Python's ``re`` needs 2^n steps for
``(a+)+b``, and holds the interpreter's lock meanwhile, so that no resource of the node would answer. RE2 never
backtracks, and matches without that lock. It has neither look-around nor backreferences
(https://github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1024)
def is_glob(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def name_matches(name: str, glob: str) -> bool:
    """Whether a glob matches a file name. Only a leading dot matches a leading dot, because udev creates its links as
    ``.#name`` and renames them.
    """
    hidden = name.startswith(".") and not glob.startswith(".")
    return not hidden and fnmatchcase(name, glob)


def value_matches(value: str, glob: str) -> bool:
    """Whether a glob matches a value as in udev's rules: ``*``, ``?``, ``[...]``, and ``|`` between alternatives.

    Source: udev(7), "The match value may also contain ...".
    """
    alternatives = _alternatives(glob)
    return value in alternatives if not is_glob(glob) else any(fnmatchcase(value, one) for one in alternatives)


@lru_cache(maxsize=1024)
def _alternatives(glob: str) -> tuple[str, ...]:
    return tuple(one.replace("[^", "[!") if is_glob(glob) else one for one in glob.split("|"))


_UNTAKEN = (
    (re.compile(r"\(\?<?[=!]"), "look-around"),
    (re.compile(r"\\[1-9]|\(\?P="), "backreferences"),
    (re.compile(r"\(\?>|[*+?}]\+"), "possessive or atomic groups"),
)
"""Constructs of Python's expressions that no engine without backtracking has."""
_UPPER_BOUND = re.compile(r"(?<!\\)(?:\\\\)*(\{,([0-9]*)\})")
"""``{,n}``: a repetition with only an upper bound in Python; RE2 matches it literally."""


class ExpressionError(ValueError):
    """An invalid regular expression. The text says what was found, and what to write instead."""


class Expression:
    """A regular expression in RE2's syntax, parsed once. Raises ExpressionError."""

    def __init__(self, text: str) -> None:
        import re2  # noqa: PLC0415  1 MB, and most configurations have no expression

        if bound := _UPPER_BOUND.search(text):
            raise ExpressionError(f"expected {{0,{bound[2]}}} in place of {bound[1]}, found {text!r}")
        options = re2.Options()
        options.log_errors = False  # RE2 would write them to stderr, among the lines of the log
        try:
            self._parsed: Any = re2.compile(text, options)
        except (re2.error, UnicodeEncodeError) as error:
            said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
            why = f"expected a regular expression that RE2 takes ({said})"
            # RE2 doesn't say what to write in place of a construct that it lacks
            if untaken := next((what for pattern, what in _UNTAKEN if pattern.search(text)), None):
                why = (
                    f"expected a regular expression without {untaken}, which no engine without backtracking can match "
                    f"({said}): say it in several tests, such as regex and none_of"
                )
            raise ExpressionError(f"{why}, found {text!r}") from error

    @property
    def groups(self) -> int:
        return int(self._parsed.groups)

    def fullmatch(self, text: str) -> bool:
        """Whether the expression matches all of the text."""
        return self._parsed.fullmatch(_bytes(text)) is not None

    def part(self, text: str) -> str | None:
        """The first group of the first match, or all of the match if there are no groups; None without a match."""
        found = self._parsed.search(_bytes(text))
        part = None if found is None else found[min(self.groups, 1)]
        return None if part is None else part.decode(errors="surrogateescape")

    def first_group(self, text: str) -> str | None:
        """The first group of the first match; None without a match."""
        found = self._parsed.search(_bytes(text))
        group = None if found is None else found[1]
        return None if group is None else group.decode(errors="surrogateescape")


@lru_cache(maxsize=256)
def expression(text: str) -> Expression:
    """An expression, parsed once for all objects. Raises ExpressionError."""
    return Expression(text)


def _bytes(text: str) -> bytes:
    """The bytes to match. Bytes of a file name that aren't UTF-8 match no character of an expression."""
    return text.encode(errors="surrogateescape")

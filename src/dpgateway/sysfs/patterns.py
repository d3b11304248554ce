"""Globs over names and values; pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache


@lru_cache(maxsize=1024)
def is_glob(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def name_matches(name: str, glob: str) -> bool:
    """Whether a glob matches the name of a file. A leading dot needs a dot, because udev makes its links as ``.#name``
    and renames them.
    """
    hidden = name.startswith(".") and not glob.startswith(".")
    return not hidden and fnmatchcase(name, glob)


def value_matches(value: str, glob: str) -> bool:
    """Whether a value is what udev's rules would take for it: ``*``, ``?``, ``[...]``, and ``|`` between alternatives.

    Source: udev(7), "The match value may also contain ...".
    """
    alternatives = _alternatives(glob)
    return value in alternatives if not is_glob(glob) else any(fnmatchcase(value, one) for one in alternatives)


@lru_cache(maxsize=1024)
def _alternatives(glob: str) -> tuple[str, ...]:
    return tuple(one.replace("[^", "[!") if is_glob(glob) else one for one in glob.split("|"))

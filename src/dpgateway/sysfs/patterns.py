"""Globs over names and values; pure."""

from __future__ import annotations

from fnmatch import fnmatchcase


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
    if not is_glob(glob):
        return value in glob.split("|")
    return any(fnmatchcase(value, one.replace("[^", "[!")) for one in glob.split("|"))

"""Globs over paths, with the meaning of a shell's ``globstar``; pure.

``*``, ``?`` and ``[...]`` stay within one component. They match a leading dot only with a literal dot, because udev
creates its links as ``.#name`` and renames them. ``**`` is any number of directories.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpgateway.sysfs import name_matches

ANY_DEPTH = "**"


def is_lasting(path: str) -> bool:
    """Whether a path is below a directory such as ``by-id`` or ``by-path``, where udev's names are stable.

    The kernel's own names depend on the order in which it found the devices (udev's rules.d/60-serial.rules,
    60-persistent-storage.rules).
    """
    return any(part.startswith("by-") for part in path.split("/")[:-1])


def parse(path: str) -> tuple[str, ...]:
    """The components of a glob relative to /dev; a ``**`` at its end means everything below."""
    parts = tuple(path.split("/"))
    return (*parts, "*") if parts[-1] == ANY_DEPTH else parts


def matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a parsed glob matches a whole path, given as its components."""
    if not parts:
        return not names
    if parts[0] == ANY_DEPTH and matches(names, parts[1:]):
        return True
    if not names:
        return False
    if parts[0] == ANY_DEPTH:
        return not names[0].startswith(".") and matches(names[1:], parts)
    return name_matches(names[0], parts[0]) and matches(names[1:], parts[1:])


def excludes(path: str, globs: Sequence[tuple[str, ...]]) -> bool:
    """Whether a glob matches the path, or a directory above it."""
    names = path.split("/")
    return any(matches(names[:depth], parts) for parts in globs for depth in range(1, len(names) + 1))

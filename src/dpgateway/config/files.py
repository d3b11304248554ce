"""Reads the files of a configuration."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

from dpgateway.config.problems import InvalidConfiguration, Place, Problem
from dpgateway.config.written import Written, parse

LARGEST_FILE = 1024 * 1024
"""Bytes."""
MISNAMED = frozenset({".yml", ".YAML", ".YML", ".json"})
"""Endings of files in a directory that their author may believe to be read."""


def read_all(path: Path, problems: list[Problem]) -> list[Written]:
    """What ``path`` says, a file or each ``*.yaml`` of a directory. What is wrong is appended to ``problems``."""
    files = []
    for file in _files(path, problems):
        try:
            files.append(_parse(file))
        except InvalidConfiguration as error:
            problems.extend(error.problems)
    return files


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    try:
        files = _in_directory(path, {".yaml"})
    except (FileNotFoundError, NotADirectoryError):
        return [path]
    except OSError as error:
        problems.extend(_unreadable(error, Place(str(path))).problems)
        return []
    if not files:
        problems.append(Problem(Place(str(path)), "no *.yaml in this directory", "at least one"))
    return files


def _in_directory(path: Path, endings: Set[str]) -> list[Path]:
    # Hidden ones are not for us: a mounted ConfigMap keeps its older versions in ..data.
    return sorted(file for file in path.iterdir() if file.suffix in endings and not file.name.startswith("."))


def misnamed(path: Path) -> tuple[Path, ...]:
    """The files of the directory that aren't read, but may have been meant to."""
    try:
        return tuple(_in_directory(path, MISNAMED))
    except OSError:
        return ()


def _parse(file: Path) -> Written:
    """What ``file`` says, a mapping. Raises InvalidConfiguration with one problem."""
    whole = Place(str(file))
    written = parse(_read(file, whole), str(file))
    if written is None or written.value is None:
        raise _invalid(whole, "an empty file", "resources", "see docs/reference/configuration.md")
    if not isinstance(written.value, dict):
        raise _invalid(written.place, written.shown, "a mapping with the keys resources, defaults, kubelet")
    return written


def _unreadable(error: OSError, place: Place) -> InvalidConfiguration:
    """What to say of a file or directory that is there, but that can't be read."""
    hint = f"let uid {os.geteuid()} read it, or run as root" if isinstance(error, PermissionError) else ""
    return _invalid(place, f"a path that can't be read ({error.strerror})", "a readable file or directory", hint)


def _invalid(place: Place, found: str, expected: str, hint: str = "") -> InvalidConfiguration:
    return InvalidConfiguration([Problem(place, found, expected, hint)])


def _read(file: Path, whole: Place) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise _invalid(whole, "no such file or directory", "a configuration file", "--config names another") from None
    except OSError as error:
        raise _unreadable(error, whole) from error
    if len(raw) > LARGEST_FILE:
        raise _invalid(whole, f"more than {LARGEST_FILE} bytes", "a configuration file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _invalid(whole, f"bytes that aren't UTF-8, at offset {error.start}", "text in UTF-8") from error

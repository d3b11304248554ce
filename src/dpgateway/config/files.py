"""Reads the files of a configuration, and refuses those that others than root can write when we are root.

A mounted ConfigMap is a directory of links into ``..data``; the files that the links lead to are what is checked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from dpgateway.config.problems import InvalidConfiguration, Place, Problem, missing_space
from dpgateway.config.written import Written

LARGEST_FILE = 1024 * 1024
"""Bytes."""
KINDS = {"d": "a directory", "p": "a named pipe", "s": "a socket", "c": "a character device", "b": "a block device"}
"""By the letter that ``ls -l`` has for them."""
MISNAMED = frozenset({".yml", ".YAML", ".YML", ".json"})
"""Endings of files in a directory that their author may believe to be read."""


@dataclass(frozen=True, slots=True)
class Files:
    """What the files of a configuration say."""

    written: tuple[Written, ...]
    problems: tuple[Problem, ...] = ()
    ignored: tuple[Path, ...] = ()
    """Files of the directory that aren't read, but may have been meant to."""


def read_all(path: Path) -> Files:
    """What ``path`` says, a file or each ``*.yaml`` of a directory."""
    problems: list[Problem] = []
    written = []
    for file in _files(path, problems):
        try:
            written.append(_parse(file))
        except InvalidConfiguration as error:
            problems.extend(error.problems)
    return Files(tuple(written), tuple(problems), _misnamed(path))


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    try:
        files = _in_directory(path, {".yaml"})
        _check_owner(path, path.stat(), read_only=bool(os.statvfs(path).f_flag & os.ST_RDONLY))
    except InvalidConfiguration as error:
        problems.extend(error.problems)
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


def _misnamed(path: Path) -> tuple[Path, ...]:
    try:
        return tuple(_in_directory(path, MISNAMED))
    except OSError:
        return ()


def _parse(file: Path) -> Written:
    """What ``file`` says, a mapping. Raises InvalidConfiguration with one problem."""
    from dpgateway.config.parsing import parse  # noqa: PLC0415  takes 2 MB, and a running gateway reads no YAML itself

    whole = Place(str(file))
    written = parse(_read(file, whole), str(file))
    if written is None or written.value is None:
        raise _invalid(whole, "an empty file", "resources", "see docs/reference/configuration.md")
    if not isinstance(written.value, dict):
        hint = missing_space(written.value) if isinstance(written.value, str) else ""
        expected = "a mapping with the keys resources, defaults, kubelet, state_dir, runtime, web"
        raise _invalid(written.place, written.shown, expected, hint)
    return written


def _unreadable(error: OSError, place: Place) -> InvalidConfiguration:
    """What to say of a file or directory that is there, but that can't be read."""
    hint = f"let uid {os.geteuid()} read it, or run as root" if isinstance(error, PermissionError) else ""
    return _invalid(place, f"a path that can't be read ({error.strerror})", "a readable file or directory", hint)


def _invalid(place: Place, found: str, expected: str, hint: str = "") -> InvalidConfiguration:
    return InvalidConfiguration([Problem(place, found, expected, hint)])


def _read(file: Path, whole: Place) -> str:
    try:
        _check_kind(file, file.stat())
        # NONBLOCK: a pipe that has come in between doesn't wait for its writer (open(2))
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            _check_kind(file, os.fstat(stream.fileno()))
            _check_owner(file, os.fstat(stream.fileno()))
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
        before = raw[: error.start]
        place = Place(str(file), before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
        raise _invalid(place, f"bytes that aren't UTF-8, {error.object[error.start]:#x}", "text in UTF-8") from error


def _check_kind(file: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.filemode(status.st_mode)[0], "something else")
        raise _invalid(Place(str(file)), kind, "a file", "write the configuration into a file")


def _check_owner(path: Path, status: os.stat_result, *, read_only: bool = False) -> None:
    """Refuses what another user could change, because drivers do as root what the configuration says.

    ``read_only``: a mounted ConfigMap is a directory that anybody may write, but for its read-only mount.
    """
    if os.geteuid() != 0:
        return
    expected = "only root to own it and to write it, because the gateway runs as root"
    if status.st_uid != 0:
        raise _invalid(Place(str(path)), f"user {status.st_uid} as its owner", expected, f"chown root {path}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not read_only:
        found = f"a mode that lets others write it, {stat.S_IMODE(status.st_mode):04o}"
        raise _invalid(Place(str(path)), found, expected, f"chmod go-w {path}")

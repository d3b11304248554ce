"""Reads the files of a configuration. As root it refuses files that other users can write.

A mounted ConfigMap is a directory of links into ``..data``; the targets of the links are checked.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Wrong, missing_space
from dpgateway.config.source import Written
from dpgateway.kit.files import NotAFileError, TooLongError, read

LARGEST_FILE = 1024 * 1024
"""Bytes."""
KINDS = {"d": "a directory", "p": "a named pipe", "s": "a socket", "c": "a character device", "b": "a block device"}
"""By the letter that ``ls -l`` shows."""
MISNAMED = frozenset({".yml", ".YAML", ".YML", ".json"})
"""Suffixes of files that look like configuration but aren't read."""


@dataclass(frozen=True, slots=True)
class Files:
    """The content of a configuration's files."""

    written: tuple[Written, ...]
    problems: tuple[Problem, ...] = ()
    ignored: tuple[Path, ...] = ()
    """Files of the directory with a suffix of MISNAMED."""


def read_all(path: Path) -> Files:
    """Parses ``path``, a file, or each ``*.yaml`` of a directory. The document of each file is a mapping."""
    from dpgateway.config.parsing import parse  # noqa: PLC0415  it takes 2 MB, and a running gateway parses no YAML

    problems: list[Problem] = []
    written = []
    files, misnamed = _files(path, problems)
    for file in files:
        try:
            one = parse(_read(file), str(file))
            if one is not None and one.value is None and one.problems:  # a tag
                raise InvalidConfiguration(one.problems)
            if one is None or one.value is None:
                raise Wrong("an empty file", "resources", "see docs/reference/configuration.md")
            if not isinstance(one.value, dict):
                keys = "a mapping with the keys resources, defaults, kubelet, state_dir, runtime, dra, cluster, web"
                raise InvalidConfiguration([Problem(one.place, one.shown, keys, missing_space(one.value))])
            written.append(one)
        except InvalidConfiguration as error:
            problems += error.problems
        except Wrong as wrong:
            problems.append(wrong.at(Place(str(file))))
    return Files(tuple(written), tuple(problems), misnamed)


def _files(path: Path, problems: list[Problem]) -> tuple[list[Path], tuple[Path, ...]]:
    """The files to read, and the misnamed ones."""
    whole = Place(str(path))
    try:
        # Without hidden files: a mounted ConfigMap keeps its versions in ..data.
        inner = sorted(file for file in path.iterdir() if not file.name.startswith("."))
        status, read_only = path.stat(), bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return [path], ()
    except OSError as error:
        problems.append(_unreadable(error).at(whole))
        return [], ()
    if wrong := _unsafe(path, status, read_only=read_only):
        problems.append(wrong.at(whole))
    files = [file for file in inner if file.suffix == ".yaml"]
    misnamed = tuple(file for file in inner if file.suffix in MISNAMED)
    if not files:
        hint = "".join(f"rename {file.name} to {file.stem}.yaml" for file in misnamed[:1])
        problems.append(Problem(whole, "no *.yaml in this directory", "at least one", hint))
    return files, misnamed


def _read(file: Path) -> str:
    # It gets the status of the open file, so that the file can't be exchanged between check and read.
    def check(status: os.stat_result) -> None:
        if wrong := _unsafe(file, status):
            raise wrong

    try:
        raw = read(file, LARGEST_FILE, check, follow=True).content
    except FileNotFoundError:
        raise Wrong("no such file or directory", "a configuration file", "--config names another") from None
    except NotAFileError as error:
        kind = KINDS.get(stat.filemode(error.mode)[0], "something else")
        raise Wrong(kind, "a file", "write the configuration into a file") from None
    except TooLongError:
        raise Wrong(f"more than {LARGEST_FILE} bytes", "a configuration file") from None
    except OSError as error:
        raise _unreadable(error) from error

    # utf-8-sig: editors on Windows write a byte order mark.
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        place = Place(str(file), before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
        found = f"bytes that aren't UTF-8, {error.object[error.start]:#x}"
        raise InvalidConfiguration([Problem(place, found, "text in UTF-8")]) from error


def _unreadable(error: OSError) -> Wrong:
    """The error for an existing file or directory."""
    hint = f"let uid {os.geteuid()} read it, or run as root" if isinstance(error, PermissionError) else ""
    return Wrong(f"a path that can't be read ({error.strerror})", "a readable file or directory", hint)


def _unsafe(path: Path, status: os.stat_result, *, read_only: bool = False) -> Wrong | None:
    """An error if another user can change the file: drivers run as root.

    ``read_only``: the mount is; the directory of a mounted ConfigMap is writable for all, on a read-only mount.
    """
    expected = "only root to own it and to write it, because the gateway runs as root"
    if os.geteuid() == 0 and status.st_uid != 0:
        return Wrong(f"user {status.st_uid} as its owner", expected, f"chown root {path}")
    if os.geteuid() == 0 and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not read_only:
        found = f"a mode that lets others write it, {stat.S_IMODE(status.st_mode):04o}"
        return Wrong(found, expected, f"chmod go-w {path}")
    return None

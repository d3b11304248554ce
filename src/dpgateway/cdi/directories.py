"""Resolves CDI names in the directories of specs. Blocks, so it is used on a thread.

Directories are listed for every lookup, because the writer of a spec notifies nobody; a file is parsed again only when
its stat has changed. A broken spec is logged once and ignored.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dpgateway.cdi.expansion import HostNode, Resolved
from dpgateway.cdi.producer import OWN
from dpgateway.cdi.spec import Spec, read
from dpgateway.errors import CdiError
from dpgateway.kit import files
from dpgateway.kit.complaint import Complaint

LARGEST = 1024 * 1024
"""Bytes of a spec."""
MOST = 4096
"""Files of one directory."""
ENDINGS = frozenset({".json", ".yaml"})
"""What the runtimes read (scanSpecDirs, pkg/cdi/spec-dirs.go)."""
MOST_NAMED = 10
PATIENCE = 5.0
"""Seconds that a lookup waits for another one."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """One directory as it was found."""

    path: Path
    specs: Mapping[str, Spec]
    """By file."""
    wrong: Mapping[str, str]
    """Why a file, or the directory itself, is ignored, by path."""


@dataclass(frozen=True, slots=True)
class _Seen:
    stamp: tuple[int, ...]
    spec: Spec | None
    wrong: str = ""
    lacks: frozenset[str] | None = None
    """Kinds that don't occur in its text; None once it was parsed."""

    def is_enough(self, stamp: tuple[int, ...], kinds: frozenset[str] | None) -> bool:
        """``kinds``: as of :meth:`SpecDirectories._look`."""
        return self.stamp == stamp and (self.lacks is None or (kinds is not None and kinds <= self.lacks))


class SpecDirectories:
    """May be used from several threads."""

    def __init__(self, directories: Sequence[Path], complaint: Complaint) -> None:
        """``directories``: a later one wins over an earlier one. ``complaint`` gets what is wrong with specs."""
        self._directories, self._complaint = tuple(directories), complaint
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def resolve(self, names: Iterable[str]) -> tuple[Resolved, ...]:
        """The edits of each name. Raises CdiError, which says where it looked and what it found."""
        if not self._lock.acquire(timeout=PATIENCE):  # a disk that hangs blocks one thread only
            raise CdiError(f"the CDI specs have been read for {PATIENCE:g} s: a disk hangs, or there are too many")
        names = tuple(names)
        kinds = frozenset(name.partition("=")[0] for name in names)
        try:
            found = [self._look(directory, kinds) for directory in self._directories]
            if any(not _is_there(name, found) for name in names):  # the error lists everything there is
                found = [self._look(directory, None) for directory in self._directories]
            self._complaint.say(*(text for directory in found for text in directory.wrong.values()))
        finally:
            self._lock.release()
        return tuple(_resolved(name, found) for name in names)

    def _look(self, directory: Path, kinds: frozenset[str] | None) -> _Directory:
        """``kinds``: only specs that may be of these are parsed, because a node may have thousands; None: all."""
        specs: dict[str, Spec] = {}
        wrong: dict[str, str] = {}
        try:
            files = _files(directory)
        except FileNotFoundError:
            files = []
        except (CdiError, OSError) as error:
            files, wrong[str(directory)] = [], str(error)
        for file in files:
            seen = self._read(file, directory, kinds)
            if seen.spec is not None:
                specs[str(file)] = seen.spec
            elif seen.wrong:
                wrong[str(file)] = seen.wrong
        there = set(map(str, files))
        for gone in [known for known in self._seen if Path(known).parent == directory and known not in there]:
            del self._seen[gone]
        return _Directory(directory, specs, wrong)

    def _read(self, file: Path, directory: Path, kinds: frozenset[str] | None) -> _Seen:
        try:
            stamp = _stamp(file.stat())
            seen = self._seen.get(str(file))
            if seen is None or not seen.is_enough(stamp, kinds):
                lacks = (seen.lacks if seen is not None and seen.stamp == stamp else None) or frozenset()
                seen = self._seen[str(file)] = _read(file, directory, _Seen(stamp, None, lacks=lacks), kinds)
        except FileNotFoundError:  # the file is gone by now
            return _Seen((), None)
        except OSError as error:
            return _Seen((), None, f"{file}: {error.strerror}")
        return seen


def _files(directory: Path) -> list[Path]:
    check_owner(directory, directory.stat())
    files = sorted(file for file in directory.iterdir() if file.suffix in ENDINGS and not OWN.fullmatch(file.name))
    if len(files) > MOST:
        raise CdiError(f"{directory}: {len(files)} specs, expected at most {MOST}")
    return [file for file in files if not file.is_dir()]


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(file: Path, directory: Path, unread: _Seen, kinds: frozenset[str] | None) -> _Seen:
    stamp = unread.stamp
    try:
        text = _text(file, directory)
        # a name has no white space, so YAML and JSON can write it in other letters with a backslash only
        if kinds is not None and "\\" not in text and not any(kind in text for kind in kinds):
            return replace(unread, lacks=kinds.union(unread.lacks or ()))
        return _Seen(stamp, read(text, str(file)))
    except CdiError as error:
        return _Seen(stamp, None, str(error))


def _text(file: Path, directory: Path) -> str:
    try:
        raw = files.read(_real(file, directory), LARGEST, partial(check_owner, file)).content
    except (files.NotAFileError, files.TooLongError) as error:
        raise CdiError(str(error)) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CdiError(f"{file}: expected text in UTF-8: {error}") from error


def _real(file: Path, directory: Path) -> Path:
    """Where a link leads to, which must be within the directory."""
    if not file.is_symlink():
        return file
    real = file.resolve()
    if not real.is_relative_to(directory.resolve()):
        raise CdiError(f"{file}: a link to {real}, expected a file of this directory")
    return real


def check_owner(path: Path, status: os.stat_result) -> None:
    """Refuses what another user could change, because a spec says which of the host's devices a container gets."""
    if os.geteuid() != 0:
        return
    if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found = f"found user {status.st_uid} and mode {stat.S_IMODE(status.st_mode):04o}"
        raise CdiError(
            f"{path}: {found}, expected only root to own it and to write it, because the gateway runs as root"
        )


def _is_there(name: str, directories: Sequence[_Directory]) -> bool:
    return any(True for directory in directories for _ in _having(name, directory))


def _resolved(name: str, directories: Sequence[_Directory]) -> Resolved:
    """A later directory wins. Two specs of one directory with the same name: runtimes refuse the name, even if another
    directory has it, too (refresh, pkg/cdi/cache.go).
    """
    chosen: Resolved | None = None
    for directory in directories:
        having = list(_having(name, directory))
        if len(having) > 1:
            files = " and ".join(one.file for one in having)
            raise CdiError(f"the CDI device {name} is in {files}: expected one spec of a directory to have it")
        chosen = having[0] if having else chosen
    if chosen is None:
        looked = "; ".join(_told(name, directory) for directory in directories)
        raise CdiError(f"no spec has the CDI device {name}; looked in {looked}")
    return chosen


def _having(name: str, directory: _Directory) -> Iterator[Resolved]:
    kind, _, device = name.partition("=")
    for file, spec in directory.specs.items():
        if spec.kind == kind:
            for one in spec.devices:
                if one.name == device:
                    yield Resolved(name, file, spec.containerEdits, one.containerEdits)


def _told(name: str, directory: _Directory) -> str:
    """What was found there."""
    if not directory.specs and not directory.wrong:
        return f"{directory.path}, which has no specs"
    kind = name.partition("=")[0]
    same = [one.name for spec in directory.specs.values() if spec.kind == kind for one in spec.devices]
    kinds = sorted({spec.kind for spec in directory.specs.values()})
    has = f"of {kind} only {_few(same)}" if same else f"only {_few(kinds)}" if kinds else "none that counts"
    broken = "".join(f"; not counted: {text}" for text in _first(list(directory.wrong.values())))
    return f"{directory.path}, which has {has}{broken}"


def _first(texts: Sequence[str]) -> Sequence[str]:
    return [*texts[:3], *([f"and {len(texts) - 3} more"] if len(texts) > 3 else [])]


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:MOST_NAMED], *(["..."] if len(names) > MOST_NAMED else [])])


def look(path: str) -> HostNode | None:
    """What is there on this host, for ``expansion``."""
    try:
        status = os.stat(path)  # noqa: PTH116  a spec's text, not a path of ours
    except (OSError, ValueError):
        return None
    type_ = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else ""
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return HostNode(type_, major, minor, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)

"""Resolves CDI names in the spec directories. Blocks, so it is used on a thread.

Theory of operation. Each lookup lists the directories, because spec files come without a notification. A node may have
thousands of specs, so a file is read again only when its stat has changed, and parsed only if its text contains one of
the wanted kinds; ``_known`` caches the result by file. If a name isn't found, all files are parsed, because the error
lists all devices. A broken spec is logged once and ignored.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpgateway.cdi.expansion import HostNode, Resolved
from dpgateway.cdi.producer import OWN
from dpgateway.cdi.spec import Spec, read
from dpgateway.errors import CdiError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.files import NotAFileError, TooLongError
from dpgateway.kit.files import read as read_file

LARGEST = 1024 * 1024
"""Most bytes of a spec."""
MOST = 4096
"""Most specs of one directory."""
ENDINGS = frozenset({".json", ".yaml"})
"""Suffixes of the files that the runtimes read (scanSpecDirs, pkg/cdi/spec-dirs.go)."""
MOST_NAMED = 10
PATIENCE = 5.0
"""Timeout in seconds of a lookup that waits for another one."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """One directory's content at a lookup."""

    path: Path
    specs: Mapping[str, Spec]
    """The valid specs, by file."""
    wrong: Mapping[str, str]
    """Why a file, or the directory itself, is ignored, by path."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The cached result of one file."""

    stamp: tuple[int, ...] = ()
    """Fields of its stat; the result is valid while they are the same."""
    spec: Spec | None = None
    wrong: str = ""
    lacks: frozenset[str] | None = None
    """Kinds that its text doesn't contain; None once it was parsed."""


class SpecDirectories:
    """May be used from several threads."""

    def __init__(self, directories: Sequence[Path], complaint: Complaint) -> None:
        """``directories``: a later one has precedence. ``complaint`` gets the faults of specs."""
        self._directories, self._complaint = tuple(directories), complaint
        self._lock = threading.Lock()
        self._known: dict[Path, _Known] = {}

    def resolve(self, names: Iterable[str]) -> tuple[Resolved, ...]:
        """The edits of each name. Raises CdiError, which lists the directories and their devices."""
        if not self._lock.acquire(timeout=PATIENCE):  # a disk that hangs blocks one thread only
            raise CdiError(f"the CDI specs have been read for {PATIENCE:g} s: a disk hangs, or there are too many")
        names = tuple(names)
        kinds = frozenset(name.partition("=")[0] for name in names)
        try:
            found = [self._look(directory, kinds) for directory in self._directories]
            # A missing name is rare, and its error lists every device, so then all files are parsed.
            if not all(any(_having(name, directory) for directory in found) for name in names):
                found = [self._look(directory, None) for directory in self._directories]
            self._complaint.say(*(text for directory in found for text in directory.wrong.values()))
        finally:
            self._lock.release()

        # The last directory that has a device counts. A name in two specs of one directory is refused, as by the
        # runtimes, even if another directory has it, too (refresh, pkg/cdi/cache.go).
        resolved: list[Resolved] = []
        for name in names:
            chosen: Resolved | None = None
            for directory in found:
                having = _having(name, directory)
                if len(having) > 1:
                    where = " and ".join(one.file for one in having)
                    raise CdiError(f"the CDI device {name} is in {where}: expected one spec of a directory to have it")
                chosen = having[0] if having else chosen
            if chosen is None:
                looked = "; ".join(_contents(directory, name.partition("=")[0]) for directory in found)
                raise CdiError(f"no spec has the CDI device {name}; looked in {looked}")
            resolved.append(chosen)
        return tuple(resolved)

    def _look(self, directory: Path, kinds: frozenset[str] | None) -> _Directory:
        """``kinds``: the wanted kinds; None: all files are parsed."""
        specs: dict[str, Spec] = {}
        wrong: dict[str, str] = {}
        there: list[Path] = []
        try:
            check_owner(directory, directory.stat())
            there = [file for file in directory.iterdir() if file.suffix in ENDINGS and not OWN.fullmatch(file.name)]
            if len(there) > MOST:
                wrong[str(directory)] = f"{directory}: {len(there)} specs, expected at most {MOST}"
                there = []
        except FileNotFoundError:
            pass
        except (CdiError, OSError) as error:
            wrong[str(directory)] = str(error)
        for file in sorted(there):
            known = self._read(file, directory, kinds)
            if known.spec is not None:
                specs[str(file)] = known.spec
            elif known.wrong:
                wrong[str(file)] = known.wrong
        # A removed file's result is dropped, so that the cache doesn't grow.
        for gone in {file for file in self._known if file.parent == directory}.difference(there):
            del self._known[gone]
        return _Directory(directory, specs, wrong)

    def _read(self, file: Path, directory: Path, kinds: frozenset[str] | None) -> _Known:
        try:
            status = file.stat()
            stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            known, lacks = self._known.get(file), frozenset[str]()
            if known is not None and known.stamp == stamp:
                if known.lacks is None or (kinds is not None and kinds <= known.lacks):
                    return known
                lacks = known.lacks
            if stat.S_ISDIR(status.st_mode):
                return _Known()
            real = file.resolve() if file.is_symlink() else file
            if real is not file and not real.is_relative_to(directory.resolve()):
                raise CdiError(f"{file}: a link to {real}, expected a file of this directory")
            text = read_file(real, LARGEST, partial(check_owner, file)).content.decode("utf-8-sig")
            # a kind has no white space, so only a backslash lets YAML and JSON spell it differently
            if kinds is not None and "\\" not in text and not any(kind in text for kind in kinds):
                known = _Known(stamp, lacks=kinds | lacks)
            else:
                known = _Known(stamp, read(text, str(file)))
        except FileNotFoundError:  # the file is gone by now
            return _Known()
        except UnicodeDecodeError as error:
            known = _Known(stamp, wrong=f"{file}: expected text in UTF-8: {error}")
        except (CdiError, NotAFileError, TooLongError) as error:
            known = _Known(stamp, wrong=str(error))
        except OSError as error:
            return _Known(wrong=f"{file}: {error.strerror}")
        self._known[file] = known
        return known


def check_owner(path: Path, status: os.stat_result) -> None:
    """Refuses a file or directory that another user may change, because a spec gives containers devices of the host.
    Raises CdiError.
    """
    if os.geteuid() != 0:
        return
    if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found = f"found user {status.st_uid} and mode {stat.S_IMODE(status.st_mode):04o}"
        raise CdiError(
            f"{path}: {found}, expected only root to own it and to write it, because the gateway runs as root"
        )


def _having(name: str, directory: _Directory) -> list[Resolved]:
    kind, _, device = name.partition("=")
    return [
        Resolved(name, file, spec.containerEdits, one.containerEdits)
        for file, spec in directory.specs.items()
        if spec.kind == kind
        for one in spec.devices
        if one.name == device
    ]


def _contents(directory: _Directory, kind: str) -> str:
    """Describes a directory's devices for an error: those of this kind, or else all kinds."""
    if not directory.specs and not directory.wrong:
        return f"{directory.path}, which has no specs"
    same = [one.name for spec in directory.specs.values() if spec.kind == kind for one in spec.devices]
    names = same or sorted({spec.kind for spec in directory.specs.values()})
    few = ", ".join([*names[:MOST_NAMED], *(["..."] if len(names) > MOST_NAMED else [])])
    has = f"{f'of {kind} ' if same else ''}only {few}" if names else "none that counts"
    wrong = list(directory.wrong.values())
    broken = [*wrong[:3], *([f"and {len(wrong) - 3} more"] if len(wrong) > 3 else [])]
    return f"{directory.path}, which has {has}{''.join(f'; not counted: {text}' for text in broken)}"


def look(path: str) -> HostNode | None:
    """The host's file at ``path``, for ``expansion``; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  a spec's text, not a path of ours
    except (OSError, ValueError):
        return None
    type_ = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else ""
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return HostNode(type_, major, minor, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)

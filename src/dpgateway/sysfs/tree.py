"""A tree of the host's files as this process sees it: where a path leads, without ever leaving the tree.

This module follows links itself, because the host's ``/dev`` or ``/sys`` may be mounted elsewhere: a link to ``/dev/x``
then means ``<root>/x``, which the kernel doesn't know.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from dpgateway.sysfs.changes import UNTOLD, Trace
from dpgateway.sysfs.values import NoValue

MAX_LINKS = 40  # as the kernel: include/linux/namei.h, MAXSYMLINKS
_PAGE = 4096
LONGEST = 65536
"""Bytes of a file that are read. An attribute of sysfs has a page at most (Documentation/filesystems/sysfs.rst)."""
LONGEST_IN_PROC = 4 * 1024 * 1024
"""The same of a file in /proc: /proc/net/route has a line of 128 bytes for each route."""


class OutsideError(Exception):
    """A path leads out of the tree."""


class Tree:
    """All paths are relative to its root; a *real* path has no links in it."""

    def __init__(self, root: str, host: str, trace: Trace | None = None) -> None:
        """``root``: where this process sees what the host has at ``host``, for example ``/host/dev`` and ``/dev``.
        ``trace``: where it is noted on what answers depended.
        """
        self.root = root
        self.host = host
        self.trace = trace or Trace()
        self._above = "" if host == "/sys" else f"{root.rstrip('/')}/"
        self._longest = LONGEST_IN_PROC if host == "/proc" else LONGEST
        self._plain: set[str] = set()
        """Real paths that were found to be no links. A tree is made for one look, in which nothing is asked twice."""

    def at(self, real: str) -> Path:
        return Path(self.root, real)

    def note(self, real: str) -> None:
        """In the words of :class:`Changes`."""
        self.trace.note(UNTOLD if self.host == "/proc" else self._above + real)

    def follow(self, path: str, start: str = "") -> str:
        """The real path of ``path`` as seen from the real directory ``start``. Raises OutsideError, OSError."""
        here, todo, links = start, path.split("/")[::-1], 0
        while todo:
            name = todo.pop()
            if name == "..":
                here = self._up(here, path)
            elif name not in {"", "."}:
                inner = f"{here}/{name}" if here else name
                target = None if inner in self._plain else self._noted_target(here, name, inner)
                if target is None:
                    here = inner
                    continue
                self.note(inner)
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if target.startswith("/"):
                    here, target = "", self._inside(inner, target)
                todo.extend(target.split("/")[::-1])
        self.note(here)
        return here

    def _noted_target(self, directory: str, name: str, path: str) -> str | None:
        try:
            return self._target(directory, name, path)
        except OSError:
            self.note(path)
            raise

    def _up(self, here: str, path: str) -> str:
        if not here:
            raise OutsideError(f"{self.host}/{path} leads outside {self.host}")
        return here.rpartition("/")[0]

    def _target(self, directory: str, name: str, path: str) -> str | None:
        """What ``path``, which is ``name`` in ``directory``, leads to if it is a link."""
        try:
            return os.readlink(f"{self.root}/{path}")  # noqa: PTH115  a Path costs more than the call
        except OSError as error:
            if error.errno != errno.EINVAL:  # readlink(2): not a symbolic link
                raise
            self._plain.add(path)
            return None

    def is_directory(self, real: str) -> bool:
        return os.path.isdir(f"{self.root}/{real}")  # noqa: PTH112  as above

    def _inside(self, link: str, target: str) -> str:
        """The target of an absolute link, relative to the root."""
        if not target.startswith(f"{self.host}/"):
            raise OutsideError(f"{self.host}/{link} leads outside {self.host}, to {target!r}")
        return target.removeprefix(f"{self.host}/")

    def list(self, real: str) -> Sequence[str]:
        """The names in a real directory, in order; none, if there is no such directory. Raises OSError."""
        try:
            return sorted(os.listdir(f"{self.root}/{real}"))  # noqa: PTH208  as above
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def read(self, real: str) -> str | NoValue:
        """The text of a real regular file, without white space at its end; or why there is none. Of a link the text is
        the last part of what it leads to.
        """
        if real.endswith(_LINKS) and not isinstance(end := self._link(real), NoValue):
            return end
        try:
            file = os.open(f"{self.root}/{real}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return self._link(real) if error.errno == errno.ELOOP else _unopened(error)  # open(2), O_NOFOLLOW
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return NoValue("is no regular file")
            return _text(_bytes(file, status.st_size, self._longest), self._longest)
        except OSError as error:
            return NoValue(f"can't be read: {error.strerror}")
        finally:
            os.close(file)

    def _link(self, real: str) -> str | NoValue:
        """What it leads to need not exist."""
        try:
            name = os.readlink(f"{self.root}/{real}").rstrip("/").rpartition("/")[2]  # noqa: PTH115  as above
            return self.follow(real).rpartition("/")[2] if name in {"", ".", ".."} else name
        except OSError as error:
            return _unopened(error)
        except OutsideError as error:
            return NoValue(str(error))


_LINKS = ("/driver", "/subsystem", "/iommu_group", "/physfn")
"""What is usually a link is looked at as one first, because opening it takes longer and then fails."""


def _unopened(error: OSError) -> NoValue:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NoValue.missing()
    return NoValue(f"can't be opened: {error.strerror}")


def _bytes(file: int, size: int, longest: int) -> bytes:
    """At most one more than the longest. Only a file without a size, as in /proc, may have more after a first read."""
    parts = [os.read(file, min(max(size, _PAGE), longest) + 1)]
    length = len(parts[0])
    while not size and length <= longest and (more := os.read(file, longest + 1 - length)):
        parts.append(more)
        length += len(more)
    return b"".join(parts)


def _text(read: bytes, longest: int) -> str | NoValue:
    if len(read) > longest:
        return NoValue(f"is longer than {longest} bytes")
    try:
        text = read.decode().rstrip()
    except UnicodeDecodeError:
        return NoValue("isn't UTF-8 text")
    return NoValue("isn't text: it has a NUL character") if "\0" in text else text

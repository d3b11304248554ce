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

from dpgateway.sysfs.values import NoValue

MAX_LINKS = 40  # as the kernel: include/linux/namei.h, MAXSYMLINKS
LONGEST = 65536
"""Bytes of a file that are read. An attribute of sysfs has a page at most (Documentation/filesystems/sysfs.rst)."""


class OutsideError(Exception):
    """A path leads out of the tree."""


class Tree:
    """All paths are relative to its root; a *real* path has no links in it."""

    def __init__(self, root: str, host: str) -> None:
        """``root``: where this process sees what the host has at ``host``, for example ``/host/dev`` and ``/dev``."""
        self.root = root
        self.host = host

    def at(self, real: str) -> Path:
        return Path(self.root, real)

    def follow(self, path: str, start: str = "") -> str:
        """The real path of ``path`` as seen from the real directory ``start``. Raises OutsideError, OSError."""
        done = start.split("/") if start else []
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                self._up(done, path)
            elif name not in {"", "."}:
                target = self._step(done, name)
                links += target is not None
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                todo.extend((target or "").split("/")[::-1])
        return "/".join(done)

    def _up(self, done: list[str], path: str) -> None:
        if not done:
            raise OutsideError(f"{self.host}/{path} leads outside {self.host}")
        done.pop()

    def _step(self, done: list[str], name: str) -> str | None:
        """Goes on to ``name``. If that is a link, stays (or goes back to the root) and returns the path to follow."""
        path = "/".join([*done, name])
        try:
            target = os.readlink(f"{self.root}/{path}")  # noqa: PTH115  a Path costs more than the call
        except OSError as error:
            if error.errno != errno.EINVAL:  # readlink(2): not a symbolic link
                raise
            done.append(name)
            return None
        if target.startswith("/"):
            target = self._inside(path, target)
            done.clear()
        return target

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
        try:
            file = os.open(f"{self.root}/{real}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return self._link(real) if error.errno == errno.ELOOP else _unopened(error)  # open(2), O_NOFOLLOW
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return NoValue("is no regular file")
            return _text(_bytes(file, status.st_size))
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


def _unopened(error: OSError) -> NoValue:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NoValue.missing()
    return NoValue(f"can't be opened: {error.strerror}")


def _bytes(file: int, size: int) -> bytes:
    """At most one more than LONGEST. Only a file without a size, as in /proc, may have more after a first read."""
    read = os.read(file, LONGEST + 1)
    while not size and len(read) <= LONGEST and (more := os.read(file, LONGEST + 1 - len(read))):
        read += more
    return read


def _text(read: bytes) -> str | NoValue:
    if len(read) > LONGEST:
        return NoValue(f"is longer than {LONGEST} bytes")
    try:
        text = read.decode().rstrip()
    except UnicodeDecodeError:
        return NoValue("isn't UTF-8 text")
    return NoValue("isn't text: it has a NUL character") if "\0" in text else text

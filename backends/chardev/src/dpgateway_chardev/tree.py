"""The host's /dev as this process sees it: where a path leads, without ever leaving /dev, and what is there.

This module follows links itself, because the host's /dev may be mounted elsewhere: a link to ``/dev/x`` then means
``<dev>/x``, which the kernel doesn't know. On the way it notes the names and directories that the answer depended on,
because those have to be watched. It opens no device, because opening has side effects (a tty raises DTR).
"""

from __future__ import annotations

import errno
import os
import stat
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway_chardev.options import HOST_DEV
from dpgateway_chardev.patterns import name_matches

MAX_LINKS = 40  # as the kernel: include/linux/namei.h, MAXSYMLINKS


@dataclass(frozen=True, slots=True)
class Node:
    """The kernel's name for the device behind a device node."""

    type: str
    major: int
    minor: int
    real: str = field(default="", compare=False)
    """The real path that led to it, which is no part of what the device is."""

    def __str__(self) -> str:
        return f"{self.type} {self.major}:{self.minor}"


@dataclass(frozen=True, slots=True)
class NoNode:
    """Why a path doesn't lead to a device node that a container can get."""

    reason: str
    unknown: bool = False
    """Something is there, but this process can't find out what."""


@dataclass(slots=True)
class Interest:
    """The names in one directory that matter."""

    names: set[str] = field(default_factory=set)
    globs: set[str] = field(default_factory=set)

    def __contains__(self, name: str) -> bool:
        return name in self.names or any(name_matches(name, glob) for glob in self.globs)

    def add(self, other: Interest) -> None:
        self.names |= other.names
        self.globs |= other.globs

    def __le__(self, other: Interest) -> bool:
        return self.names <= other.names and self.globs <= other.globs


class OutsideError(Exception):
    """A path leads out of /dev."""


def _inside(link: str, target: str) -> str:
    """The target of an absolute link, relative to /dev."""
    if not target.startswith(f"{HOST_DEV}/"):
        raise OutsideError(f"{HOST_DEV}/{link} leads outside {HOST_DEV}, to {target!r}")
    return target.removeprefix(f"{HOST_DEV}/")


class Tree:
    """One look at /dev. All paths are relative to it; a *real* path has no links in it."""

    def __init__(self, dev: str) -> None:
        self.dev = dev
        self.interests: defaultdict[str, Interest] = defaultdict(Interest)
        """The names that the answers depended on, by real directory."""

    def at(self, real: str) -> Path:
        return Path(self.dev, real)

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
            raise OutsideError(f"{HOST_DEV}/{path} leads outside {HOST_DEV}")
        done.pop()

    def _step(self, done: list[str], name: str) -> str | None:
        """Goes on to ``name``. If ``name`` is a link, stays (or goes back to /dev) and returns the path to follow."""
        here = "/".join(done)
        self.interests[here].names.add(name)
        path = f"{here}/{name}" if here else name
        try:
            target = str(self.at(path).readlink())
        except OSError as error:
            if error.errno != errno.EINVAL:  # readlink(2): not a symbolic link
                raise
            done.append(name)
            return None
        if target.startswith("/"):
            target = _inside(path, target)
            done.clear()
        return target

    def look(self, path: str, expected: str) -> Node | NoNode:
        """The device node of type ``expected`` (char, block) at ``path``, or why there is none."""
        shown = f"{HOST_DEV}/{path}"
        try:
            real = self.follow(path)
            status = self.at(real).lstat()
        except OutsideError as error:
            return NoNode(str(error))
        except (FileNotFoundError, NotADirectoryError):
            return NoNode(self._absent(path))
        except OSError as error:
            return NoNode(f"can't look at {shown}: {error.strerror}", unknown=True)
        found = _KINDS.get(stat.S_IFMT(status.st_mode), "file of another kind")
        if found != f"{expected} device":
            return NoNode(f"expected a {expected} device at {shown}, found a {found}")
        return Node(expected, os.major(status.st_rdev), os.minor(status.st_rdev), real)

    def _absent(self, path: str) -> str:
        text = f"no such device node: {HOST_DEV}/{path}"
        try:
            return f"{text} is a link to {str(self.at(path).readlink())!r}, which is absent"
        except OSError:
            return text


_KINDS = {
    stat.S_IFCHR: "char device",
    stat.S_IFBLK: "block device",
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "regular file",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}

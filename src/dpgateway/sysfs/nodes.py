"""Device nodes under the host's /dev: what a path leads to. No device is opened, because opening has side effects (a
tty raises DTR).

On the way it is noted on which names and directories the answer depended, because those have to be watched.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway.sysfs.changes import Trace
from dpgateway.sysfs.patterns import name_matches
from dpgateway.sysfs.tree import OutsideError, Tree

HOST_DEV = "/dev"


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


class WatchedTree(Tree):
    """A tree of which it is noted what answers depended on."""

    def __init__(self, root: str, host: str, trace: Trace | None = None) -> None:
        super().__init__(str(Path(root)), host, trace)
        self.interests: defaultdict[str, Interest] = defaultdict(Interest)
        """The names that the answers depended on, by real directory."""

    @property
    def directories(self) -> dict[str, Interest]:
        """The names that matter, by the directory's absolute path as this process sees it."""
        return {str(self.at(real)): interest for real, interest in self.interests.items()}

    def _target(self, directory: str, name: str, path: str) -> str | None:
        self.interests[directory].names.add(name)
        return super()._target(directory, name, path)


class DevTree(WatchedTree):
    """One look at /dev."""

    def __init__(self, root: str, trace: Trace | None = None) -> None:
        super().__init__(root, HOST_DEV, trace)

    def look(self, path: str, expected: str) -> Node | NoNode:
        """The device node of type ``expected`` (char, block) at ``path``, or why there is none."""
        return self.trace.once((HOST_DEV, path, expected), lambda: self._look(path, expected))

    def _look(self, path: str, expected: str) -> Node | NoNode:
        shown = f"{HOST_DEV}/{path}"
        try:
            real = self.follow(path)
            status = os.lstat(f"{self.root}/{real}")
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

"""Device nodes under the host's /dev. No device is opened, because opening has side effects (a tty raises DTR).

Path resolution records the names and directories that the answer depends on, because those have to be watched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from dpgateway.sysfs.changes import Interest, Trace
from dpgateway.sysfs.tree import OutsideError, Tree

HOST_DEV = "/dev"
ANY_TYPE = "any"
"""Expects a device node of either type."""
_TYPES = ("char", "block")


@dataclass(frozen=True, slots=True)
class DevNode:
    """The kernel's name for the device behind a device node."""

    type: str
    major: int
    minor: int
    real: str = field(default="", compare=False)
    """The node's real path, which isn't part of the device's identity."""

    def __str__(self) -> str:
        return f"{self.type} {self.major}:{self.minor}"


@dataclass(frozen=True, slots=True)
class NoNode:
    """Why a path has no device node for a container."""

    reason: str
    unknown: bool = False
    """Whether the path exists, but couldn't be examined."""


class WatchedTree(Tree):
    """A tree whose trace also collects the directories to watch."""

    def __init__(self, root: str, host: str, trace: Trace | None = None) -> None:
        super().__init__(root, host, trace)
        self._interests: dict[str, Interest] = {}
        """The trace's interests, keyed by real directory, which saves computing absolute paths."""

    @property
    def directories(self) -> Mapping[str, Interest]:
        """The directories to watch for all trees with this trace: see ``Trace.directories``."""
        return self.trace.directories

    def _target(self, directory: str, name: str, path: str) -> str | None:
        self.interest(directory).names.add(name)
        return super()._target(directory, name, path)

    def interest(self, real: str) -> Interest:
        """The names in a real directory that matter."""
        if (interest := self._interests.get(real)) is None:
            here = str(self.at(real))
            interest = self._interests[real] = self.trace.directories.setdefault(here, Interest())
        return interest


class DevTree(WatchedTree):
    """One look at /dev."""

    def __init__(self, root: str, trace: Trace | None = None) -> None:
        super().__init__(root, HOST_DEV, trace)

    def look(self, path: str, expected: str) -> DevNode | NoNode:
        """The device node of type ``expected`` (char, block or any) at ``path`` below /dev, or why there is none."""
        return self.trace.once((HOST_DEV, path, expected), lambda: self._look(path, expected))

    def _look(self, path: str, expected: str) -> DevNode | NoNode:
        shown = f"{HOST_DEV}/{path}"
        try:
            real = self.follow(path)
            status = os.lstat(f"{self.root}/{real}")  # not stat(2): a link placed here since might lead outside
        except OutsideError as error:
            return NoNode(str(error))
        except (FileNotFoundError, NotADirectoryError):
            text = f"no such device node: {shown}"
            with suppress(OSError):  # it isn't a link
                text += f" is a link to {str(self.at(path).readlink())!r}, which is absent"
            return NoNode(text)
        except OSError as error:
            return NoNode(f"can't look at {shown}: {error.strerror}", unknown=True)
        found = _KINDS.get(stat.S_IFMT(status.st_mode), "file of another kind")
        allowed = _TYPES if expected == ANY_TYPE else (expected,)
        if (kind := found.removesuffix(" device")) not in allowed:
            hint = "; type: any takes both" if kind in _TYPES else ""
            return NoNode(f"expected a {' or '.join(allowed)} device at {shown}, found a {found}{hint}")
        return DevNode(kind, os.major(status.st_rdev), os.minor(status.st_rdev), real)


_KINDS = {
    stat.S_IFCHR: "char device",
    stat.S_IFBLK: "block device",
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "regular file",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}

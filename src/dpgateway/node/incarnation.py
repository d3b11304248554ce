"""Tells one incarnation of a kubelet from the next by its ``kubelet.sock``.

A kubelet creates a new socket at each start: a file with another device or inode. Inodes are reused at once, so another
ctime is a sign of a new file, too, but only with a CREATE event for the file, or while no kubelet's stream is open:
chmod, touch and relabelling change the ctime of a living kubelet's socket.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SocketFile:
    """The identity of a socket file."""

    device: int
    inode: int
    ctime: int
    """Nanoseconds."""

    def __str__(self) -> str:
        return f"{self.device}:{self.inode}:{self.ctime}"

    @classmethod
    def look(cls, path: Path) -> SocketFile | None:
        """None if there is no such file, or it can't be examined."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_ctime_ns)

    def same_inode(self, other: SocketFile) -> bool:
        return (self.device, self.inode) == (other.device, other.inode)


class Change(enum.Enum):
    """The meaning of one look at ``kubelet.sock``."""

    NEW = "another incarnation"
    GONE = "no file"
    BACK = "the file of the same incarnation, seen again"
    NONE = "nothing new"


class Incarnations:
    """Compares each file with the one before."""

    def __init__(self) -> None:
        self._file: SocketFile | None = None
        self._first: SocketFile | None = None
        """The file when this incarnation was first seen."""
        self._there = False

    @property
    def there(self) -> bool:
        """Whether the last look found the file."""
        return self._there

    def see(self, found: SocketFile | None, *, created: bool, streaming: bool) -> Change:
        """``created``: a CREATE event came for the file since the last look; ``streaming``: a kubelet streams."""
        if found is None:
            was, self._there = self._there, False
            return Change.GONE if was else Change.NONE
        returned, self._there = not self._there, True
        last, self._file = self._file, found
        if self._is_new(last, found, created=created, streaming=streaming) or (returned and not streaming):
            self._first = found
            return Change.NEW
        return Change.BACK if returned else Change.NONE

    def _is_new(self, last: SocketFile | None, found: SocketFile, *, created: bool, streaming: bool) -> bool:
        if last is None or self._first is None or not last.same_inode(found):
            return True
        if created:  # a look at an earlier DELETE event may have seen this file already
            return self._first.ctime != found.ctime
        return last.ctime != found.ctime and not streaming

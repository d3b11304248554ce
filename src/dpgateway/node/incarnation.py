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


class Change(enum.Enum):
    """The meaning of one look at ``kubelet.sock``."""

    NEW = "another incarnation"
    GONE = "no file"
    BACK = "the file of the same incarnation, seen again"
    NONE = "nothing new"


@dataclass(slots=True)
class Incarnations:
    """The incarnation of one ``kubelet.sock``, look by look."""

    _there: bool = False
    """Whether the last look found the file."""
    _last: SocketFile | None = None
    """The file that was found last."""
    _first: SocketFile | None = None
    """The file when its incarnation was first seen."""

    def see(self, found: SocketFile | None, *, created: bool, streaming: bool) -> Change:
        """``created``: a CREATE event came for the file since the last look; ``streaming``: a kubelet streams."""
        was_there, self._there = self._there, found is not None
        if found is None:
            return Change.GONE if was_there else Change.NONE

        last, self._last = self._last, found
        if last is None or self._first is None or (last.device, last.inode) != (found.device, found.inode):
            new = True
        elif created:  # a look because of an earlier DELETE event may have seen this file already
            new = self._first.ctime != found.ctime
        else:  # a living kubelet's file was touched, unless none streams
            new = last.ctime != found.ctime and not streaming
        if new or not (was_there or streaming):
            self._first = found
            return Change.NEW
        return Change.NONE if was_there else Change.BACK

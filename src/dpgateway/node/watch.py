"""Watches the kubelet's device-plugins directory for changes of ``kubelet.sock`` and of the checkpoint.

Theory of operation. The watch is installed before the first look, so no change is missed. While the directory is
missing, its nearest existing parent is watched; the directory is never created. At each poll, and after each event from
outside the directory, the watched place must still be the nearest one, by device and inode, because a directory can be
replaced, or renamed with one of its parents. Polls come every POLL seconds, and every POLL_BLIND seconds without
inotify, whose instances and watches can be used up.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import Callable
from pathlib import Path

from asyncinotify import Mask

from dpgateway.kit.complaint import Complaint
from dpgateway.kit.inotify import Watch
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import aligned
from dpgateway.node import checkpoint
from dpgateway.node.directory import SOCKET

POLL = 10.0
"""Seconds."""
POLL_BLIND = 1.0
"""Seconds."""

_ENTRY = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.ATTRIB
_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
# Events of the directory's name in its parent: while a file in it is open, deleting the directory makes no DELETE_SELF.
_NAME = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.MOVE_SELF | Mask.ONLYDIR
# Kubelets 1.8 and 1.9 write the checkpoint in place; later kubelets rename a file over it.
_CONTENT = Mask.CLOSE_WRITE
_LOST = Mask.Q_OVERFLOW | Mask.IGNORED | Mask.UNMOUNT | Mask.DELETE_SELF | Mask.MOVE_SELF

_log = bind(__name__)


class DirectoryWatch:
    """Runs as one task: :meth:`run`."""

    def __init__(
        self, directory: Path, look: Callable[[bool], None], read: Callable[[], None], poll: float = POLL
    ) -> None:
        """``look(created)``: called when kubelet.sock may have changed, with True if it may be a new file. ``read()``:
        called when the checkpoint may have changed. ``poll``: seconds.
        """
        self._directory, self._look, self._read, self._poll = directory, look, read, poll
        self._complaint = Complaint(_log, "can't watch %s", f"watching {directory} with inotify again")

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            with Watch() as watch:
                await self._follow(watch)

    async def _follow(self, watch: Watch) -> None:
        """Returns when another place must be watched, or inotify retried."""
        watched = self._nearest()
        place, _ = watched
        number = watch.add(place, _ENTRY | _SELF | (_CONTENT if place == self._directory else Mask(0)))
        if place != place.parent:
            watch.add(place.parent, _NAME)
        if watch.failure is None:
            self._complaint.over()
        elif not isinstance(watch.failure, FileNotFoundError):  # else the place was just removed
            self._complaint.say(
                f"{self._directory} ({watch.failure}), so it is looked at every {POLL_BLIND:g} s; with 'too many open "
                "files' or 'no space left', raise fs.inotify.max_user_instances or fs.inotify.max_user_watches"
            )
        # While another place is watched, the CREATE event of kubelet.sock goes unseen, so it may be a new file.
        self._look_everywhere(created=place != self._directory)

        clock = asyncio.get_running_loop().time
        here, due = True, clock() + aligned(self._poll if watch.failure is None else POLL_BLIND)
        while here:
            event = await watch.next(due - clock())
            if event is not None and event.mask & _LOST:
                break
            within = event is not None and place == self._directory and event.watch == number
            if event is not None and within:
                if event.name == SOCKET:
                    self._look(bool(event.mask & Mask.CREATE))
                elif event.name == checkpoint.NAME:
                    self._read()
            if clock() >= due:
                due = clock() + aligned(self._poll)
                self._look_everywhere(created=False)
                if watch.failure is not None:
                    return
            elif within:
                continue  # this was the right place a moment ago, and something happens in it
            here = self._nearest() == watched
        # Events were lost, or another directory is there: kubelet.sock may be a new file.
        self._look_everywhere(created=True)

    def _look_everywhere(self, *, created: bool) -> None:
        self._read()
        self._look(created)

    def _nearest(self) -> tuple[Path, tuple[int, int]]:
        """The directory, or its nearest existing parent, with its device and inode."""
        for place in (self._directory, *self._directory.parents):
            with contextlib.suppress(OSError):
                found = place.stat()
                if stat.S_ISDIR(found.st_mode):
                    return place, (found.st_dev, found.st_ino)  # every tmpfs has the same inode for its root
        return Path("/"), (0, 0)

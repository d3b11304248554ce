"""The control file: faults on demand, read again after each inotify event."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from asyncinotify import InitFlags, Inotify, Mask

from dpgateway import DriverError, from_plain
from dpgateway_simulated.faults import Fault

Log = logging.LoggerAdapter[logging.Logger]
_NOTHING = "{}"
# Neither CREATE nor MODIFY: a file that is being written isn't complete yet. MOVED_TO covers a file replaced by
# rename, and a ConfigMap volume (the kubelet renames its ``..data`` link, pkg/volume/util/atomic_writer.go).
_EVENTS = Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.DELETE_SELF | Mask.MOVE_SELF


@dataclass(frozen=True, slots=True)
class _Content:
    faults: tuple[Fault, ...] = ()


def parse(text: str) -> tuple[Fault, ...]:
    """The faults in a control file's text. Raises ValueError."""
    if not text.strip():  # perhaps a writer has truncated it, and hasn't written yet
        raise ValueError("expected JSON, found an empty file")
    return from_plain(json.loads(text), _Content).faults


class ControlFile:
    """Passes the file's faults to ``obey``: on construction, then on its own thread after each change of the text.

    A missing file means no faults. An unreadable or invalid file is logged, and changes nothing.
    """

    def __init__(self, path: Path, obey: Callable[[tuple[Fault, ...]], None], log: Log) -> None:
        """Raises DriverError if the file's directory can't be watched."""
        self._path, self._obey, self._log = path, obey, log
        self._said = _NOTHING
        self._stopped = threading.Event()
        try:
            # blocking, because the selector of asyncinotify 4.4 doesn't take a sync_timeout of -1 for "no timeout"
            with contextlib.ExitStack() as stack:
                self._inotify = stack.enter_context(Inotify(InitFlags.CLOEXEC))
                self._watch = self._inotify.add_watch(path.parent, _EVENTS | Mask.ONLYDIR)
                stack.pop_all()
        except OSError as error:
            raise DriverError(f"control_file: can't watch {path.parent}: {error.strerror}") from error
        self._look()  # after the watch was added, so that no change is missed
        self._thread = threading.Thread(target=self._follow, name=f"control file {path}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            with contextlib.suppress(OSError, ValueError):  # the watch, and so the thread, may have ended before
                self._inotify.rm_watch(self._watch)  # causes an IGNORED event, which wakes the thread

    def _follow(self) -> None:
        with self._inotify:
            for event in self._inotify:
                if self._stopped.is_set():
                    return
                if event.mask & (Mask.IGNORED | Mask.MOVE_SELF):
                    self._log.warning(
                        "the control file's directory %s is gone; its last faults stay", self._path.parent
                    )
                    return
                # renames of other names count, too: in a ConfigMap volume the renamed name is ..data
                if event.name == Path(self._path.name) or not event.mask & Mask.CLOSE_WRITE:
                    self._look()

    def _look(self) -> None:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            text = _NOTHING
        except (OSError, ValueError) as error:
            self._log.warning("can't read the control file %s, the faults stay as they were: %s", self._path, error)
            return
        if text == self._said:  # obeying it again would restart the faults' schedules
            return
        self._said = text
        try:
            faults = parse(text)
        except (ValueError, RecursionError) as error:
            self._log.warning("the control file %s is wrong, the faults stay as they were: %s", self._path, error)
            return
        self._obey(faults)

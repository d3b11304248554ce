"""Says at once that something changed in a directory that matters; the caller finds out what changed.

One inotify instance and one daemon thread per driver. Without inotify nothing fails (fs.inotify.max_user_instances is
128 on many machines, for all of root's programs together): the gateway asks every ``refresh`` anyway, and the driver
tries to watch again each time.
"""

from __future__ import annotations

import errno
import os
import selectors
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from asyncinotify import Event, Inotify, Mask

from dpgateway.sysfs.nodes import Interest
from dpgateway.sysfs.notices import Notices

_NAMED = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.ATTRIB
_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF
_ALWAYS = _SELF | Mask.UNMOUNT | Mask.Q_OVERFLOW
"""Events that matter for every name. Without IGNORED, which follows one of these, or our own removal of a watch."""
_LIMITS = {errno.EMFILE: "fs.inotify.max_user_instances", errno.ENOSPC: "fs.inotify.max_user_watches"}


class Watcher:
    """Calls ``changed`` on its own thread for each event that matters, until it is closed."""

    def __init__(self, name: str, changed: Callable[[], None], notices: Notices) -> None:
        self._name = name
        self._changed = changed
        self._notices = notices
        self._lock = threading.Lock()  # between watch() and close(); the thread only reads what they set
        self._closed = False
        self._inotify: Inotify | None = None
        self._thread: threading.Thread | None = None
        self._stop = -1
        self._interests: Mapping[int, Interest] = {}
        """By watch descriptor. The mapping is replaced, never changed, because the thread reads it without the lock."""

    def watch(self, interests: Mapping[str, Interest]) -> bool:
        """Watches these directories and no others. For a missing directory it watches the nearest parent.

        Returns whether it watches more than before. Then the caller has to look again.
        """
        with self._lock:
            if self._closed:
                return False
            troubles: list[str] = []
            before, now = self._interests, self._install(interests, troubles)
            self._interests = now
            self._notices.tell(troubles)
            self._remove(before.keys() - now.keys())
        return any(wd not in before or not interest <= before[wd] for wd, interest in now.items())

    def close(self) -> None:
        """Ends the thread, after it has reported earlier events. ``changed`` isn't called after this returns."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread and self._inotify:
            os.eventfd_write(self._stop, 1)
            thread.join()
            self._inotify.close()
            os.close(self._stop)

    def _install(self, interests: Mapping[str, Interest], troubles: list[str]) -> dict[int, Interest]:
        installed: dict[int, Interest] = {}
        try:
            inotify = self._started()
        except OSError as error:
            troubles.append(_trouble("can't watch for changes", error))
            return installed
        for directory, interest in interests.items():
            try:
                wd, merged = _add(inotify, directory, interest)
            except OSError as error:
                troubles.append(_trouble(f"can't watch {directory} for changes", error))
            else:
                installed.setdefault(wd, Interest()).add(merged)
        return installed

    def _started(self) -> Inotify:
        if self._inotify is None:
            inotify = Inotify(cache_size=64, sync_timeout=0)
            self._stop = os.eventfd(0)
            self._thread = threading.Thread(target=self._run, args=(inotify,), name=self._name, daemon=True)
            self._thread.start()
            self._inotify = inotify
        return self._inotify

    def _remove(self, gone: Collection[int]) -> None:
        if self._inotify and gone:
            for watch in self._inotify.watches:
                if watch.wd in gone:
                    with suppress(OSError):  # the directory was removed, and its watch with it
                        self._inotify.rm_watch(watch)

    def _run(self, inotify: Inotify) -> None:
        with selectors.PollSelector() as selector:  # poll(2) needs no file descriptor, so this can't fail
            selector.register(inotify.fd, selectors.EVENT_READ)
            selector.register(self._stop, selectors.EVENT_READ)
            stop = False
            while not stop:
                stop = self._stop in {key.fd for key, _ in selector.select()}
                for event in inotify:  # until none is left
                    if self._matters(event):
                        self._changed()

    def _matters(self, event: Event) -> bool:
        if event.mask & _ALWAYS:
            return True
        interest = self._interests.get(event.watch.wd) if event.watch else None
        return interest is not None and (event.name is None or str(event.name) in interest)


def _add(inotify: Inotify, directory: str, interest: Interest) -> tuple[int, Interest]:
    try:
        return inotify.add_watch(directory, _NAMED | _SELF | Mask.ONLYDIR).wd, interest
    except (FileNotFoundError, NotADirectoryError):
        parent, _, name = directory.rpartition("/")
        return _add(inotify, parent or "/", Interest({name}))


def _trouble(what: str, error: OSError) -> str:
    limit = f"; {_LIMITS[error.errno]} is reached" if error.errno in _LIMITS else ""
    return f"{what}, changes are noticed only at the next refresh: {error.strerror}{limit}"

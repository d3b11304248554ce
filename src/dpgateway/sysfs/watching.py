"""Says at once that something changed in a directory that matters, or in sysfs; the caller finds out what changed.

One inotify instance and one daemon thread per driver. Without inotify nothing fails (fs.inotify.max_user_instances is
128 on many machines, for all of root's programs together): the gateway asks every ``refresh`` anyway, and the driver
tries to watch again each time.
"""

from __future__ import annotations

import errno
import os
import selectors
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from asyncinotify import Event, Inotify, Mask

from dpgateway.sysfs.nodes import Interest
from dpgateway.sysfs.notices import Notices
from dpgateway.sysfs.uevents import Uevent, Uevents, unheard

NOTHING: Mapping[str, Interest] = MappingProxyType({})
_NAMED = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.ATTRIB
_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF
_ALWAYS = _SELF | Mask.UNMOUNT | Mask.Q_OVERFLOW
"""Events that matter for every name. Without IGNORED, which follows one of these, or our own removal of a watch."""
_LIMITS = {errno.EMFILE: "fs.inotify.max_user_instances", errno.ENOSPC: "fs.inotify.max_user_watches"}


SETTLE = 0.005
"""Seconds without a change after which several changes count as one; the kernel announces all parts of a device within
a millisecond or two."""
LONGEST = 0.05
"""Seconds after which they do, even if more keep coming."""


class Watcher:
    """Calls ``changed`` on its own thread for each event that matters, until it is closed."""

    def __init__(
        self,
        name: str,
        changed: Callable[[], None],
        notices: Notices,
        matters: Callable[[Uevent], bool] | None = None,
    ) -> None:
        """``matters``: which of the kernel's uevents matter. With it several events in a row are one change."""
        self._name = name
        self._changed = changed
        self._notices = notices
        self._matters_in_sysfs = matters
        self._lock = threading.Lock()  # between watch() and close(); the thread only reads what they set
        self._closed = False
        self._inotify: Inotify | None = None
        self._uevents: Uevents | None = None
        self._thread: threading.Thread | None = None
        self._stop = -1
        self._interests: Mapping[int, Interest] = {}
        """By watch descriptor. The mapping is replaced, never changed, because the thread reads it without the lock."""

    def watch(self, interests: Mapping[str, Interest] = NOTHING) -> bool:
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
            if self._uevents:
                self._uevents.close()

    def _install(self, interests: Mapping[str, Interest], troubles: list[str]) -> dict[int, Interest]:
        installed: dict[int, Interest] = {}
        try:
            inotify = self._started()
        except OSError as error:
            troubles.append(_trouble("can't watch for changes", error))
            return installed
        if self._matters_in_sysfs and (deaf := self._deaf):
            troubles.append(f"changes in /sys are noticed only at the next refresh: {deaf}")
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
            if self._matters_in_sysfs:
                with suppress(OSError):  # _deaf says so
                    self._uevents = Uevents()
            self._stop = os.eventfd(0)
            self._thread = threading.Thread(target=self._run, args=(inotify,), name=self._name, daemon=True)
            self._thread.start()
            self._inotify = inotify
        return self._inotify

    @property
    def _deaf(self) -> str | None:
        return "there is no socket for the kernel's uevents" if self._uevents is None else unheard()

    def _remove(self, gone: Collection[int]) -> None:
        if self._inotify and gone:
            for watch in self._inotify.watches:
                if watch.wd in gone:
                    with suppress(OSError):  # the directory was removed, and its watch with it
                        self._inotify.rm_watch(watch)

    def _run(self, inotify: Inotify) -> None:
        with selectors.PollSelector() as selector:  # poll(2) needs no file descriptor, so this can't fail
            for one in (inotify.fd, self._stop, self._uevents):
                if one is not None:
                    selector.register(one, selectors.EVENT_READ)
            stop, since, last = False, 0.0, 0.0
            """When the first and the last event came that hasn't been told yet; 0 if there is none."""
            while not stop:
                due = min(last + SETTLE, since + LONGEST) - time.monotonic() if since else None
                ready = selector.select(due) if due is None or due > 0 else []
                stop = self._stop in {key.fd for key, _ in ready}
                for _ in self._events(inotify):
                    if self._matters_in_sysfs is None:
                        self._changed()
                    else:
                        last = time.monotonic()
                        since = since or last
                if since and (stop or not ready):
                    since = 0.0
                    self._changed()

    def _events(self, inotify: Inotify) -> Iterator[None]:
        """One for each event that matters, until none is left."""
        yield from (None for event in inotify if self._matters(event))
        if self._uevents and self._matters_in_sysfs:
            yield from (None for event in self._uevents.read() if event is None or self._matters_in_sysfs(event))

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

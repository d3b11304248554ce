"""Change notification for a driver: which places changed, in watched directories and in sysfs.

Theory. A daemon thread per driver polls three descriptors: the inotify subscription, the uevent socket, and an eventfd
that wakes it for its end, or for a socket that could be opened only later. It puts the places that an event names into
the *inbox*, and then calls ``changed``, which has the gateway ask for a list. The driver takes the inbox (``news``)
before it looks.

- The kernel announces a device in a burst of uevents. With ``matters``, the notification waits until no event has come
  for ``SETTLE`` seconds, but at most ``LONGEST``.
- Some events name no place, some are lost, and some directories can't be watched. Then ``news`` is None: anything may
  have changed.
- A watch begins before its look, or the look is repeated: ``watch`` returns whether it watches more than before.
- Without inotify, or the socket, nothing fails: the gateway asks every ``refresh`` anyway, and ``watch`` tries again
  each time.

The lock serialises ``watch`` and ``close``, which the gateway may call from different threads. The thread takes no lock
but the inbox's: ``_watched`` is replaced, never mutated, and ``_uevents`` is set once.
"""

from __future__ import annotations

import errno
import os
import selectors
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType

from asyncinotify import Mask

from dpgateway.kit.complaint import Complaint
from dpgateway.kit.inotify import Subscription
from dpgateway.sysfs.changes import ChangedPlaces, Interest
from dpgateway.sysfs.uevents import Uevent, Uevents, unheard

NOTHING: Mapping[str, Interest] = MappingProxyType({})
_NAMED = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.ATTRIB
_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF
_ALWAYS = _SELF | Mask.UNMOUNT | Mask.Q_OVERFLOW
"""Events that matter for every name. IGNORED isn't among them: it follows one of these, or our removal of a watch."""
_LIMITS = {errno.EMFILE: "fs.inotify.max_user_instances", errno.ENOSPC: "fs.inotify.max_user_watches"}


SETTLE = 0.005
"""Seconds without a change after which several changes count as one; the kernel announces all parts of a device within
a millisecond or two."""
LONGEST = 0.05
"""Seconds from the first change to the notification, even if more keep coming."""
MOST = 64
"""Limit of places in the inbox. A look at everything takes hardly longer than a look at so many."""
_PLAIN = {"add", "remove", "change", "online", "offline", "bind", "unbind"}
"""Uevents whose path names all that they affect; ``move`` has a second path (lib/kobject_uevent.c)."""


@dataclass(slots=True)
class _WatchedDirectory:
    """The names and paths of one watch. Two paths may lead to one directory."""

    interest: Interest = field(default_factory=Interest)
    directories: set[str] = field(default_factory=set)


class _Inbox:
    """Places that events named and the driver hasn't taken yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: set[str] = set()
        self._files: set[str] = set()
        self._unsure = False
        """Whether something unnamed changed; then the sets are empty."""
        self._told = False
        """Whether the driver was notified since the last ``take``."""

    def add(self, objects: Collection[str] = (), files: Collection[str] = ()) -> None:
        """Adds places; without any, the change has no known place."""
        with self._lock:
            self._objects.update(objects)
            self._files.update(files)
            self._unsure |= (not objects and not files) or len(self._objects) + len(self._files) > MOST
            if self._unsure:
                self._objects, self._files = set(), set()

    def tell(self) -> None:
        """Records that the driver was notified; it may have collected the events already."""
        with self._lock:
            self._told = True

    def take(self) -> ChangedPlaces | None:
        """Empties the inbox. None: anything may have changed. An empty inbox without a notification means that the
        gateway asks by itself, at a refresh, which looks at everything.
        """
        with self._lock:
            news = ChangedPlaces(frozenset(self._objects), frozenset(self._files))
            unsure = self._unsure or (news == ChangedPlaces() and not self._told)
            self._objects, self._files, self._unsure, self._told = set(), set(), False, False
        return None if unsure else news


class Watcher:
    """Calls ``changed`` on its own thread for each event that matters, until closed."""

    def __init__(
        self,
        name: str,
        changed: Callable[[], None],
        complaint: Complaint,
        matters: Callable[[Uevent], bool] | None = None,
    ) -> None:
        """``matters`` selects the uevents that matter. With it a burst of events is one change; without it there is no
        uevent socket.
        """
        self._name = name
        self._changed = changed
        self._complaint = complaint
        self._matters_in_sysfs = matters
        self._lock = threading.Lock()  # between watch() and close(); the thread only reads what they set
        self._closed = False
        self._events: Subscription | None = None
        self._uevents: Uevents | None = None
        self._thread: threading.Thread | None = None
        self._wake = -1
        """An eventfd that wakes the thread; -1 before it starts."""
        self._inbox = _Inbox()
        self._troubled = True
        """Whether changes may come without an event."""
        self._watched: Mapping[int, _WatchedDirectory] = {}
        """Watches, keyed by watch descriptor. Replaced, never mutated, because the thread reads it without the lock."""

    def watch(self, interests: Mapping[str, Interest] = NOTHING) -> bool:
        """Watches exactly these directories; for a missing one, its nearest existing ancestor.

        Returns whether it watches more than before. Then the caller has to look again.
        """
        with self._lock:
            if self._closed:
                return False
            before, now = self._watched, dict[int, _WatchedDirectory]()
            troubles: list[str] = []
            listens = False
            try:
                events = self._started()
            except OSError as error:
                troubles.append(_trouble("can't watch for changes", error))
            else:
                listens = self._listen()
                # added before old ones are removed, so that a directory in both sets is watched without a gap
                now = self._install(events, interests, troubles)
                for watch in before.keys() - now.keys():
                    events.remove(watch)
            self._watched, self._troubled = now, bool(troubles)
            self._complaint.say(*troubles)
        return listens or any(wd not in before or not one.interest <= before[wd].interest for wd, one in now.items())

    def news(self) -> ChangedPlaces | None:
        """The places that events named since the last call. To be called before a look.

        None: anything may have changed, because there was no event, too many, or one without a complete name; because
        events were lost; or because some directory, or sysfs, can't be watched.
        """
        news = self._inbox.take()
        return None if self._troubled else news

    def close(self) -> None:
        """Ends the thread after it reported earlier events. ``changed`` isn't called after this returns."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread and self._events:
            os.eventfd_write(self._wake, 1)
            thread.join()
            self._events.close()
            os.close(self._wake)
            if self._uevents:
                self._uevents.close()

    def _started(self) -> Subscription:
        if self._events is None:
            with ExitStack() as failed:
                events = failed.enter_context(Subscription())
                self._wake = os.eventfd(0)
                failed.callback(os.close, self._wake)
                thread = threading.Thread(target=self._run, args=(events,), name=self._name, daemon=True)
                try:
                    thread.start()
                except (RuntimeError, MemoryError) as error:
                    raise OSError(errno.EAGAIN, "the system has no thread left") from error
                failed.pop_all()
            self._thread, self._events = thread, events
        return self._events

    def _listen(self) -> bool:
        """Opens the uevent socket unless it is open. Returns whether it did."""
        if self._matters_in_sysfs is None or self._uevents is not None:
            return False
        try:
            self._uevents = Uevents()
        except OSError:  # _install reports it
            return False
        os.eventfd_write(self._wake, 1)
        return True

    def _install(
        self, events: Subscription, interests: Mapping[str, Interest], troubles: list[str]
    ) -> dict[int, _WatchedDirectory]:
        # inotify reports nothing in sysfs, so without uevents any change there may go unnoticed
        if self._matters_in_sysfs:
            deaf = "there is no socket for the kernel's uevents" if self._uevents is None else unheard()
            troubles += [f"changes in /sys are noticed only at the next refresh: {deaf}"] if deaf else []
        installed: dict[int, _WatchedDirectory] = {}
        for directory, interest in interests.items():
            try:
                wd, existing, merged = _add(events, directory, interest)
            except OSError as error:
                troubles.append(_trouble(f"can't watch {directory} for changes", error))
            else:
                watched = installed.setdefault(wd, _WatchedDirectory())
                watched.interest.add(merged)
                watched.directories.add(existing.rstrip("/"))
        return installed

    def _run(self, events: Subscription) -> None:
        with selectors.PollSelector() as selector:  # poll(2) needs no file descriptor, so this can't fail
            for one in (events.descriptor, self._wake):
                selector.register(one, selectors.EVENT_READ)
            listens, stop, since, last = False, False, 0.0, 0.0
            """The times of the first and the last event without a notification; 0 if there is none."""
            while not stop:
                if self._uevents and not listens:
                    listens = True
                    selector.register(self._uevents, selectors.EVENT_READ)
                due = min(last + SETTLE, since + LONGEST) - time.monotonic() if since else None
                ready = selector.select(due) if due is None or due > 0 else []
                if self._wake in {key.fd for key, _ in ready}:
                    os.eventfd_read(self._wake)
                stop = self._closed  # after that: else the read may be of close()'s own number, and nothing comes again
                for _ in self._heard(events):
                    if self._matters_in_sysfs is None:
                        self._tell()
                    else:
                        last = time.monotonic()
                        since = since or last
                # the burst is over, or lasted LONGEST, or the thread ends, which still reports earlier events
                if since and (stop or not ready):
                    since = 0.0
                    self._tell()

    def _tell(self) -> None:
        self._inbox.tell()
        self._changed()

    def _heard(self, events: Subscription) -> Iterator[None]:
        """Reads all events, and yields once for each that matters, after its places went into the inbox."""
        for event in events.read():
            watched = self._watched.get(event.watch)
            if event.mask & _ALWAYS:
                self._inbox.add()
            elif watched is None or not (event.name is None or event.name in watched.interest):
                continue
            else:
                self._inbox.add(files=[f"{one}/{event.name}" for one in watched.directories if event.name is not None])
            yield None
        for uevent in self._uevents.read() if self._uevents else ():
            if uevent is None or (self._matters_in_sysfs is not None and self._matters_in_sysfs(uevent)):
                self._inbox.add([uevent.path] if uevent is not None and uevent.action in _PLAIN else ())
                yield None


def _add(events: Subscription, directory: str, interest: Interest) -> tuple[int, str, Interest]:
    """Watches a directory, or its nearest existing ancestor for the next name on the path to it. Returns the watch
    descriptor, the watched directory, and the names that matter in it.
    """
    while True:
        try:
            return events.add(directory, _NAMED | _SELF | Mask.ONLYDIR), directory, interest
        except (FileNotFoundError, NotADirectoryError):
            parent, _, name = directory.rpartition("/")
            directory, interest = parent or "/", Interest({name})


def _trouble(what: str, error: OSError) -> str:
    limit = f"; {_LIMITS[error.errno]} is reached" if error.errno in _LIMITS else ""
    return f"{what}, changes are noticed only at the next refresh: {error.strerror}{limit}"

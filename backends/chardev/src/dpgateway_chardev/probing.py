"""Periodic health probes, in child processes: opening a device may hang, and a thread that hangs in the kernel keeps
even a killed process from exiting.

Theory. One thread per prober polls the children's pidfds and an eventfd. Each check is in one of these states: resting
until ``due``; running until its deadline, also ``due``; or hung, which is killed and not yet ended. A killed child may
stay in the kernel for ever: then its check isn't run again, counts no longer as running, and holds up nothing. Children
of checks that are no longer wanted are killed and moved to ``_left`` until they end; if such a check is wanted again,
it waits for that, so that a device that comes and goes has one child at most.

A child is started on a thread of its own, without the lock: subprocess waits until the program is loaded, which may
hang, too, on a file system that doesn't answer. A check runs from the beginning of its start.

``watch`` and ``reason`` run on the driver's thread, under the lock; the thread holds the lock while it works, and
releases it to poll and to call ``changed``, because that may lead to ``watch``. Until a check has a first result its
device is Unhealthy.
"""

from __future__ import annotations

import os
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpgateway import DriverError
from dpgateway.sysfs import DevNode
from dpgateway_chardev.children import LEAVE, ProbeChild
from dpgateway_chardev.settings import Probes

AT_ONCE = 8
"""Limit of concurrent children, without hung ones."""
FIRST_REST = 1.0
"""Seconds until the retry after a first failure; it doubles with each failure, up to ``every``."""
_OPEN = """
import errno, os, sys
try:
    os.close(os.open(sys.argv[1], int(sys.argv[2])))
except OSError as error:
    if error.errno not in (errno.EBUSY, errno.EPERM):
        sys.exit(error.strerror)
"""  # EBUSY: it works, and is in use. EPERM: this process may open no device at all (device cgroup)


@dataclass(frozen=True, slots=True)
class Check:
    """One health probe of a device."""

    what: str
    """The probe's name, for people: ``opening /dev/ttyUSB0``."""
    command: tuple[str, ...]
    behind: str = ""
    """The device's hardware, as part of the check's identity: a result doesn't carry over to other hardware."""


def opening(path: str, seen: str, node: DevNode, *, write: bool) -> Check:
    """The probe that opens a node without waiting. ``seen``: where this process sees ``path``."""
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    return Check(f"opening {path}", (sys.executable, "-I", "-S", "-c", _OPEN, seen, str(flags)), str(node))


def pause(failures: int, every: float) -> float:
    """Seconds until the next probe, after this many consecutive failures."""
    return min(every, FIRST_REST * 2 ** min(failures - 1, 30)) if failures else every


class _Asked:
    """The state of one check, and its child process. Guarded by the prober's lock."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.reason: str | None = f"{check.what}: nothing is known yet"
        """Why the device is unhealthy by this check; None after a success."""
        self.due = 0.0
        """The deadline of a running child, else the time of the next probe, by time.monotonic()."""
        self.hung = False
        """Whether the child was killed, or is to be killed as soon as it has started."""
        self.starter: threading.Thread | None = None
        """The thread that starts the child."""
        self.child: ProbeChild | None = None
        self.unstarted: str | None = None
        """Why no child could be started."""
        self._failures = 0

    @property
    def runs(self) -> bool:
        return self.starter is not None or self.child is not None

    @property
    def ended(self) -> bool:
        return self.unstarted is not None or (self.child is not None and self.child.ended)

    def started(self, child: ProbeChild | str) -> None:
        """``child``: or why there is none."""
        self.starter = None
        if isinstance(child, str):
            self.unstarted = child
        else:
            self.child = child
            if self.hung:
                child.kill()

    def end(self) -> str | None:
        """Takes the result of a child that has ended: why the device is unhealthy, or None."""
        why = self.child.end() if self.child else self.unstarted
        self.child, self.unstarted = None, None
        if self.hung:  # it was killed at its deadline, so the timeout stays the reason, not the signal
            return self.reason
        return f"{self.check.what}: {why}" if why is not None else None

    def kill(self) -> None:
        self.hung = True
        if self.child:
            self.child.kill()

    def leave(self, until: float) -> None:
        """Waits for a killed child until then, and abandons one that hangs in the kernel."""
        if self.starter:
            self.starter.join(max(0.0, until - time.monotonic()))
        if self.child:
            self.child.leave(until)

    def rest(self, reason: str | None, every: float) -> None:
        """Records a result, and schedules the next probe."""
        self._failures = 0 if reason is None else self._failures + 1
        self.reason, self.due, self.hung = reason, time.monotonic() + pause(self._failures, every), False


class Prober:
    """Probes devices, and calls ``changed`` on its own thread whenever a result changes."""

    def __init__(self, name: str, probes: Probes, changed: Callable[[], None]) -> None:
        self._name, self._changed = name, changed
        self._every, self._deadline = probes.every.total_seconds(), probes.deadline.total_seconds()
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, Check], _Asked] = {}
        """The wanted checks, keyed by device id and check."""
        self._of: dict[str, list[_Asked]] = {}
        """The same, keyed by device id."""
        self._left: dict[tuple[str, Check], _Asked] = {}
        """Checks that are no longer wanted, whose killed children haven't ended."""
        self._closed = False
        self._wake = -1
        self._thread: threading.Thread | None = None

    def watch(self, checks: Mapping[str, Sequence[Check]]) -> None:
        """Replaces the set of checks, keyed by device id. Known checks keep their results. Raises DriverError."""
        wanted = [(id_, check) for id_, several in checks.items() for check in several]
        with self._lock:
            if self._closed:
                return
            before, self._asked = self._asked, {}
            for key in dict.fromkeys(wanted):  # two nodes of a device may have the same check
                if key in self._left:
                    self._asked[key] = self._left.pop(key)
                    self._asked[key].reason = f"{key[1].what}: an earlier one was killed, and hasn't ended"
                else:
                    self._asked[key] = before.pop(key) if key in before else _Asked(key[1])
            self._of = {id_: [self._asked[id_, check] for check in several] for id_, several in checks.items()}
            # a killed child may hang, so it is kept until it ends
            for asked in before.values():
                asked.kill()
            self._left |= {key: asked for key, asked in before.items() if asked.runs}
            # the thread starts with the first check, so that a resource without probes has none
            if wanted and self._thread is None:
                self._wake = os.eventfd(0)
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system is out of threads; the next list tries again
                    os.close(self._wake)
                    raise DriverError(f"no device can be probed, because there is no thread for it: {error}") from error
                self._thread = thread
            elif self._thread:
                os.eventfd_write(self._wake, 1)

    def reason(self, id_: str) -> str | None:
        """The first failed check of a device; None if all passed."""
        with self._lock:
            reasons = (asked.reason for asked in self._of.get(id_, ()))
            return next((reason for reason in reasons if reason is not None), None)

    def close(self) -> None:
        """Ends the thread, and kills the children."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread:
            os.eventfd_write(self._wake, 1)
            thread.join()
            os.close(self._wake)

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    break
                news, rest = self._step(time.monotonic())
                waiting = [self._wake, *(asked.child.pidfd for asked in self._children if asked.child)]
            # without the lock, because the gateway's next list calls watch()
            if news:
                self._changed()
            with selectors.PollSelector() as selector:
                for one in waiting:
                    selector.register(one, selectors.EVENT_READ)
                if self._wake in {key.fd for key, _ in selector.select(rest)}:
                    os.eventfd_read(self._wake)
        for asked in self._children:
            asked.kill()
        until = time.monotonic() + LEAVE  # one deadline for all, however many hang
        for asked in self._children:
            asked.leave(until)

    def _begin(self, asked: _Asked, deadline: float) -> None:
        asked.due, asked.hung = deadline, False
        asked.starter = threading.Thread(target=self._start, args=(asked,), name=f"{self._name}: start", daemon=True)
        try:
            asked.starter.start()
        except RuntimeError as error:
            asked.starter = None
            asked.rest(f"{asked.check.what}: there is no thread for it: {error}", self._every)

    def _start(self, asked: _Asked) -> None:
        program = asked.check.command[0]
        child: ProbeChild | str
        try:
            child = ProbeChild(asked.check.command)
        except (OSError, ValueError) as error:
            child = f"{program} can't be started: {getattr(error, 'strerror', error)}"
        with self._lock:
            if not self._closed:
                asked.started(child)
                os.eventfd_write(self._wake, 1)
                return
        if isinstance(child, ProbeChild):  # nobody else knows it
            child.kill()
            child.leave(time.monotonic() + LEAVE)

    @property
    def _children(self) -> Iterator[_Asked]:
        yield from self._asked.values()
        yield from self._left.values()

    def _step(self, now: float) -> tuple[bool, float | None]:
        """Does all that is due: reaps, kills and starts children. Returns whether a result changed, and the seconds
        until the next step; None: until a child ends or ``watch`` is called.
        """
        before = [asked.reason for asked in self._asked.values()]

        # children that ended come first, because they make places for others
        for key in [key for key, asked in self._left.items() if asked.ended]:
            self._left.pop(key).end()
        for asked in self._asked.values():
            if asked.ended:
                asked.rest(asked.end(), self._every)
            elif asked.runs and not asked.hung and now >= asked.due:
                asked.kill()
                asked.reason = f"{asked.check.what}: it hasn't ended within {self._deadline:g} s"
        running = sum(asked.runs and not asked.hung for asked in self._asked.values())
        for asked in self._asked.values():
            if not asked.runs and asked.due <= now and running < AT_ONCE:
                self._begin(asked, now + self._deadline)
                running += asked.runs
        # with all places taken, an overdue check waits for a child to end, and mustn't make the thread spin
        may_begin = running < AT_ONCE
        dues = (asked.due for asked in self._asked.values() if not asked.hung and (asked.runs or may_begin))
        first = min(dues, default=None)
        news = before != [asked.reason for asked in self._asked.values()]
        return news, None if first is None else max(0.0, first - now)

"""The signals of the gateway's process: which end it, which one has its configuration read again, and the rest.

The interpreter's C code writes the number of each signal into a socket at once, even while no Python code can run. The
event loop reads the numbers there, and ``guard``, another process, looks whether they are read. Once the process ends,
one stays there unread, so that the guard counts the seconds that the end takes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

from dpgateway.kit import log

END = (signal.SIGTERM, signal.SIGINT)
RELOAD = signal.SIGHUP
USELESS = (signal.SIGUSR1, signal.SIGUSR2)
"""Their default action would end the process, and operators send them to daemons."""

_log = log.bind(__name__)


class Signals:
    """Takes the signals from when it is made, on the process's first thread.

    Until :meth:`follow`, SIGTERM and SIGINT end the process at once, because there is nothing yet to end in order.
    """

    def __init__(self) -> None:
        self.inbox, self._outbox = socket.socketpair()
        self.inbox.setblocking(False)
        self._outbox.setblocking(False)
        signal.set_wakeup_fd(self._outbox.fileno(), warn_on_full_buffer=False)
        for number in END:
            signal.signal(number, _end_at_once)
        for number in (RELOAD, *USELESS):
            signal.signal(number, _leave_to_the_loop)
        os.register_at_fork(after_in_child=_default)

    def follow(self, end: Callable[[], None], reload: Callable[[], None]) -> None:
        """From now on the running event loop takes the signals. It calls ``end`` at each SIGTERM or SIGINT, and
        ``reload`` at each SIGHUP; for one that came before, at once.
        """
        loop = asyncio.get_running_loop()
        signal.set_wakeup_fd(self._outbox.fileno(), warn_on_full_buffer=False)  # uvloop has put its own there
        for number in END:
            signal.signal(number, _leave_to_the_loop)
        loop.add_reader(self.inbox, self._take, end, reload)

    def ending(self) -> None:
        """The process ends now; the guard kills it if that takes too long. No signal is taken any more."""
        asyncio.get_running_loop().remove_reader(self.inbox)
        self._outbox.send(bytes([signal.SIGTERM]))

    def _take(self, end: Callable[[], None], reload: Callable[[], None]) -> None:
        numbers = self.inbox.recv(4096)
        for number in sorted(set(numbers) & set(USELESS)):
            text = "%s changes nothing; SIGHUP has the configuration read again"
            _log.warning(text, signal.Signals(number).name)
        if RELOAD in numbers:
            reload()
        for _ in range(sum(map(numbers.count, END))):
            end()


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(0)


def _leave_to_the_loop(number: int, frame: FrameType | None) -> None:
    """Does nothing. Without a handler in Python there would be none in C."""


def _default() -> None:
    """A child that a driver forks would write the signals that it gets into our socket."""
    signal.set_wakeup_fd(-1)
    for number in (*END, RELOAD, *USELESS):
        signal.signal(number, signal.SIG_DFL)

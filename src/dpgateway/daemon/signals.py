"""The signals of the running gateway: SIGTERM and SIGINT end it, SIGHUP reloads, others are ignored.

Before :func:`follow` the handlers of ``dpgateway_start`` apply: SIGTERM and SIGINT end the process at once, since
nothing needs an orderly shutdown yet, and the others are ignored. No reload is lost by that: the watch on the
configuration's files begins before they are read.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from dpgateway.kit import log

END = (signal.SIGTERM, signal.SIGINT)
RELOAD = signal.SIGHUP
USELESS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that operators send to daemons; their default action would end the process."""

_log = log.bind(__name__)


def follow(end: Callable[[], None], reload: Callable[[], None]) -> None:
    """Makes the running event loop call ``end`` at each SIGTERM or SIGINT, and ``reload`` at each SIGHUP."""
    loop = asyncio.get_running_loop()
    for number in END:
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(RELOAD, reload)
    for number in USELESS:
        text = "%s changes nothing; SIGHUP has the configuration read again"
        loop.add_signal_handler(number, _log.warning, text, number.name)
    os.register_at_fork(after_in_child=_restore_defaults)


def _restore_defaults() -> None:
    """Runs in a driver's forked child, which shares the loop's wake-up socket for signals: otherwise the SIGTERM by
    which ``multiprocessing`` ends a worker would end the gateway.
    """
    signal.set_wakeup_fd(-1)
    for number in (*END, RELOAD, *USELESS):
        signal.signal(number, signal.SIG_DFL)

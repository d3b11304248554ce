"""The signals of the running gateway: which end it, which one reloads its configuration, and the rest.

Until :func:`follow` those handlers hold that ``dpgateway_start`` installed: SIGTERM and SIGINT end the process at once,
since there is nothing to end in order, and the others are ignored. No reload is lost by that: the watch over the
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
"""Their default action would end the process, and operators send them to daemons."""

_log = log.bind(__name__)


def follow(end: Callable[[], None], reload: Callable[[], None]) -> None:
    """Has the running event loop call ``end`` at each SIGTERM or SIGINT, and ``reload`` at each SIGHUP."""
    loop = asyncio.get_running_loop()
    for number in END:
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(RELOAD, reload)
    for number in USELESS:
        text = "%s changes nothing; SIGHUP has the configuration read again"
        loop.add_signal_handler(number, _log.warning, text, number.name)
    os.register_at_fork(after_in_child=_restore_defaults)


def _restore_defaults() -> None:
    """A child that a driver forks shares the socket through which the loop learns of signals. So the SIGTERM with which
    ``multiprocessing`` ends a worker would end the gateway.
    """
    signal.set_wakeup_fd(-1)
    for number in (*END, RELOAD, *USELESS):
        signal.signal(number, signal.SIG_DFL)

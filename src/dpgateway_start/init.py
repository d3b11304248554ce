"""What a container's first process has to do, as tini does: pass signals on, and wait for everybody's orphans.

The kernel has no default action for a signal to that process, and makes it the parent of each process whose parent has
ended. Waiting for these would take the exit codes of a driver's own children away from the driver. So the gateway is
another process.
"""

import os
import signal
from collections.abc import Iterable


def stay_behind(signals: Iterable[signal.Signals]) -> None:
    """In a container's first process: returns in a child, passes ``signals`` on to it, and ends when it ends.

    In any other process it does nothing.
    """
    if os.getpid() != 1:
        return
    awaited = {*signals, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)  # a blocked signal isn't lost
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while (code := _ended(child)) is None:
        number = signal.sigwait(awaited)
        if number != signal.SIGCHLD:
            os.kill(child, number)
    os._exit(code if code >= 0 else 128 - code)


def _ended(child: int) -> int | None:
    """The exit code of the child, or the negative number of the signal that ended it; None while it runs."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return os.waitstatus_to_exitcode(status)
        if ended == 0:
            return None

"""One simulated kubelet in the foreground, until a signal or until its script or prompt ends."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.prompt.printing import Printer
from dpgateway_simulator.prompt.session import Session

Work = Callable[[Session], Coroutine[Any, Any, int]]
"""Drives a session's kubelet and returns the exit code."""

ENDING = (signal.SIGINT, signal.SIGTERM)


def at_terminal() -> bool:
    """Whether input and output are terminals and this process is in their foreground."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


async def run(
    kubelet: Kubelet, patience: float, printer: Printer, work: Work, signals: Iterable[signal.Signals] = ENDING
) -> int:
    """Runs a kubelet until a signal, or until `work` returns; returns the exit code. `patience`: of a step, in seconds.

    Raises OSError if the printer can't write.
    """
    kubelet.journal.listen(printer.event)
    ended = asyncio.Event()
    printer.gave_up = ended.set
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await kubelet.start()

    # The first of signal and work cancels the other. The kubelet ends after both, in order.
    waiting = asyncio.create_task(ended.wait(), name="until a signal")
    session = Session(kubelet, printer.answer, patience)
    working = asyncio.create_task(work(session), name="work")
    await asyncio.wait({waiting, working}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    working.cancel("" if printer.broken else "interrupted")  # the script reports a reason if there is one
    await asyncio.wait({waiting, working})
    await (kubelet.stop() if kubelet.running else kubelet.kill())
    if printer.broken:
        raise printer.broken
    return 0 if working.cancelled() else working.result()


async def forever(_: Session) -> int:
    """The work of a kubelet without a script or prompt: it never returns."""
    return await asyncio.Future[int]()

"""Standard input, output and error, which every library takes for open.

When one of them is closed, the next file that is opened takes its number. That may be a kubelet's connection, into
which a library then prints. Nobody can undo that from inside, so the process ends, and is started again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os

from dpgateway.kit import log
from dpgateway.kit.tasks import until_beat

_NAMES = ("standard input", "standard output", "standard error")
_LOOK = 5.0
"""Seconds."""

_log = log.bind(__name__)


async def watch(seconds: float) -> None:
    """Ends the process when one of them was closed. ``seconds``: what the last lines of the log may take."""
    while not (lost := [name for number, name in enumerate(_NAMES) if not _stands(number)]):  # noqa: ASYNC110  nothing tells
        await asyncio.sleep(until_beat(_LOOK))
    _log.critical(
        "a driver, or a library of it, closed %s, so the process ends: what is opened next would take that place",
        " and ".join(lost),
    )
    log.finish(seconds)
    os._exit(1)


def _stands(number: int) -> bool:
    """Whether it is open, and no file that was opened since: only what stands there on purpose outlives an exec."""
    try:
        return not fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    except OSError:
        return False

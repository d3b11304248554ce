"""The gateway as a process: its signals, what systemd wants to know, and its end, whatever hangs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
from pathlib import Path

import uvloop

from dpgateway.config import Configuration
from dpgateway.gateway import Gateway, supervised
from dpgateway.process import log
from dpgateway.process.memory import keep_what_is_there
from dpgateway.process.systemd import Notifier

LAST_WORD = 1.9
"""Seconds from a signal to the end of the process, whatever hangs."""

LAST_LINES = 0.05
"""Seconds that the last lines of the log have to be written."""

_log = log.bind(__name__)


async def serve(
    configuration: Configuration,
    directory: Path,
    node_name: str,
    stop: asyncio.Event,
) -> None:
    """Runs the gateway until ``stop``."""
    systemd = Notifier.take(os.environ)
    last_word: threading.Timer | None = None
    try:
        async with asyncio.TaskGroup() as group:
            gateway = Gateway(configuration, directory, node_name, group)
            gateway.start()
            if systemd is not None:
                tell = functools.partial(systemd.follow, gateway.report)
                group.create_task(supervised("tell systemd", tell), name="tell systemd")
            await stop.wait()
            if systemd is not None:
                systemd.send("STOPPING=1")
            last_word = _set_last_word(gateway)
            await gateway.close()
            raise _Stopped  # noqa: TRY301  it ends the group
    except* _Stopped:
        _log.info("ended")
    finally:
        if last_word is not None:
            last_word.cancel()


class _Stopped(Exception):
    pass


def _set_last_word(gateway: Gateway) -> threading.Timer:
    timer = threading.Timer(LAST_WORD, _last_word, [gateway])
    timer.daemon = True
    timer.start()
    return timer


def _last_word(gateway: Gateway) -> None:
    with contextlib.suppress(Exception):
        gateway.abandon()
    _log.warning("something hangs, so the process ends without it")
    log.finish(LAST_LINES)
    os._exit(0)


def run(configuration: Configuration, device_plugins_dir: Path, node_name: str) -> int:
    """Runs the gateway until SIGTERM or SIGINT. Returns the exit code; the caller exits at once, whatever hangs."""
    keep_what_is_there()

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(configuration, device_plugins_dir, node_name, stop)
        log.finish(LAST_LINES)
        os._exit(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0

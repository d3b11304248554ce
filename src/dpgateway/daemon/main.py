"""The gateway as a process: its signals, what systemd wants to know, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop

from dpgateway.config import Configuration, Web
from dpgateway.daemon import signals
from dpgateway.daemon.control import Control, Subject
from dpgateway.daemon.ending import Ending, Patience, linger
from dpgateway.daemon.reloading import ConfigSource, Reloading
from dpgateway.daemon.systemd import Notifier
from dpgateway.gateway import Gateway, supervised
from dpgateway.kit import log
from dpgateway.kit.memory import keep_what_is_there
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import retry
from dpgateway.web.pages import Sources, pages
from dpgateway.web.serving import Serving

LAST_WORD = 1.5
"""Seconds from a signal to the end of the process, unless native code holds the interpreter's lock: that is left to
systemd and the kubelet, which kill a process that doesn't end."""

LAST_LINES = 0.05
"""Seconds that the last lines of the log have to be written."""

_log = log.bind(__name__)


Abandon = Callable[[], None]
"""What is left to do when nothing else can be waited for. It doesn't hang."""

Lingers = Callable[[Gateway], Awaitable[None]]
"""Returns when a gateway that is told to end isn't needed any more."""


async def serve(  # noqa: PLR0913, PLR0917  all that a process has to know
    configuration: Configuration,
    node_name: str,
    stop: asyncio.Event,
    ending: Callable[[Abandon], object],
    reloading: Reloading | None = None,
    control: Path | None = None,
    linger: Lingers | None = None,
) -> None:
    """Runs the gateway until ``stop``, and then as long as it lingers. ``ending`` is called when its end begins.
    ``control``: the socket on which the gateway says how it is.
    """
    systemd = Notifier.take(os.environ)
    try:
        async with asyncio.TaskGroup() as group:
            gateway = Gateway(configuration, node_name, group)
            gateway.start()
            web = reloading.web if reloading is not None else Observable(configuration.web)
            telling = group.create_task(_tell(gateway, web, control), name="say how the gateway is")
            sources = Sources(
                gateway.overview.status, gateway.overview.readiness, gateway.works, gateway.overview.figures
            )
            serving = Serving(pages(sources), web)
            group.create_task(supervised("serve the pages", serving.run), name="serve the pages")
            if systemd is not None:
                tell = partial(systemd.follow, gateway.overview.report, gateway.changed)
                group.create_task(supervised("tell systemd", tell), name="tell systemd")
                reassure = partial(systemd.reassure, gateway.works)
                group.create_task(supervised("tell the watchdog", reassure), name="tell the watchdog")
            changing = None
            if reloading is not None:
                follow = partial(reloading.run, gateway, systemd)
                changing = group.create_task(supervised("reload", follow), name="reload")
            await stop.wait()
            if systemd is not None:
                systemd.send("STOPPING=1")
            if linger is not None:
                await linger(gateway)
            if changing is not None:
                changing.cancel()
            ending(gateway.abandon)
            await gateway.close()
            telling.cancel()
            raise _Stopped  # noqa: TRY301  it ends the group
    except* _Stopped:
        _log.info("ended")


async def _tell(gateway: Gateway, web: Observable[Web], path: Path | None) -> None:
    """Says how the gateway is to those who ask."""
    if path is None:
        return
    loop = asyncio.get_running_loop()

    def added() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(gateway.changed.notify)

    log.recent().added = added
    overview = gateway.overview
    looks = (overview.status, gateway.changed, overview.readiness)
    served = Subject(*looks, lambda: gateway.configuration(web.value), serves=lambda: gateway.serves)
    control = Control(path, served)
    await retry(control.run, partial(_untold, path))


def _untold(path: Path, error: Exception) -> None:
    """Devices come first: nothing else fails because of it."""
    if isinstance(error, OSError):
        _log.warning("`dpgateway status` can't ask this gateway: %s: %s", path, error)
    else:
        _log.error("a bug: the socket %s failed, and is made again", path, exc_info=error)


@dataclass(frozen=True, slots=True)
class Manner:
    """How the process behaves, as its command line says."""

    control: Path
    """The socket on which the gateway says how it is."""
    patience: Patience
    """How long it waits for another gateway when it is told to end."""


class _Stopped(Exception):
    pass


class LastWord:
    """Ends the process, whatever still runs, LAST_WORD seconds after it was given.

    Its thread is there from the start, because at the end the system may have none left.
    """

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Abandon] = queue.SimpleQueue()
        threading.Thread(target=self._wait, name="last word", daemon=True).start()

    def give(self, abandon: Abandon) -> None:
        self._given.put(abandon)

    def _wait(self) -> None:
        abandon = self._given.get()
        time.sleep(LAST_WORD)
        with contextlib.suppress(Exception):
            abandon()
        _log.warning("something hangs, so the process ends without it")
        log.finish(LAST_LINES)
        os._exit(0)


def run(
    configuration: Configuration,
    node_name: str,
    source: ConfigSource,
    manner: Manner,
) -> int:
    """Runs the gateway until SIGTERM or SIGINT, and then as long as it lingers. Returns the exit code; the caller exits
    at once, whatever hangs.

    ``source`` is where the configuration comes from.
    """

    last_word = LastWord()
    keep_what_is_there()

    async def main() -> None:
        end = Ending()
        reloading = Reloading(configuration, source.read)
        signals.follow(end.tell, reloading.ask)
        follow = partial(source.files.run, reloading.ask)
        following = asyncio.create_task(supervised("watch the configuration", follow), name="watch the configuration")

        longer = partial(linger, patience=manner.patience, at_once=end.at_once)
        await serve(configuration, node_name, end.told, last_word.give, reloading, manner.control, longer)
        following.cancel()
        log.finish(LAST_LINES)
        os._exit(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0

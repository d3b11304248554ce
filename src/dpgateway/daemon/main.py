"""The story of the process, from the configuration that it was given to its last word.

:func:`run` starts an event loop, in which :class:`Daemon`

1. starts the gateway: from then on kubelets get their devices;
2. starts what goes with it: the control socket, the pages, systemd's notifications, reloading. No device depends on any
   of them, so each is supervised: its failure is logged, and it starts again;
3. waits for SIGTERM or SIGINT (``signals``), and then lingers, if it is to, until a successor serves (``ending``);
4. closes the gateway, while a thread keeps the last word: LAST_WORD seconds later it ends the process.

The process ends by ``os._exit``, because threads of drivers may hang. What keeps it from that is native code that holds
the interpreter's lock: then systemd or the kubelet kills it, after its own grace period.
"""

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

from dpgateway.daemon import signals
from dpgateway.daemon.control import Control, Subject
from dpgateway.daemon.ending import Ending, Patience, linger
from dpgateway.daemon.files import FileWatch
from dpgateway.daemon.reloading import Reloading
from dpgateway.daemon.systemd import Notifier
from dpgateway.gateway import Gateway, supervised
from dpgateway.kit import log
from dpgateway.kit.memory import keep_what_is_there
from dpgateway.kit.tasks import retry
from dpgateway.web.pages import Sources, pages
from dpgateway.web.serving import Serving

LAST_WORD = 1.5
"""Seconds from the beginning of the end to ``os._exit``, whatever still runs."""
LAST_LINES = 0.05
"""Seconds that the last lines of the log have to be written."""

Abandon = Callable[[], None]
"""What is left to do when nothing else can be waited for. It doesn't hang."""

_log = log.bind(__name__)


@dataclass(frozen=True, slots=True)
class Daemon:
    """A gateway and what goes with it, in one event loop."""

    node_name: str
    reloading: Reloading
    """Has the configuration that is served first, too."""
    ending: Ending
    patience: Patience
    """How long it lingers when it is told to end."""
    files: FileWatch | None = None
    """The configuration's, whose changes reload it."""
    control: Path | None = None
    """The socket for ``dpgateway status``."""
    closing: Callable[[Abandon], object] = lambda _: None
    """Called as the gateway begins to close."""

    async def serve(self) -> None:
        """Returns when the gateway has closed."""
        systemd = Notifier.take(os.environ)
        try:
            async with asyncio.TaskGroup() as group:
                gateway = Gateway(self.reloading.wanted, self.node_name, group)
                gateway.start()
                reloads = self._accompany(gateway, systemd, group)
                await self.ending.told.wait()
                if systemd is not None:
                    systemd.send("STOPPING=1")
                await linger(gateway, self.patience, self.ending.at_once)
                # while it lingers a new configuration is still taken over; what closes doesn't start again
                reloads.cancel()
                self.closing(gateway.abandon)
                await gateway.close()
                raise _GatewayClosed  # noqa: TRY301  it ends the group
        except* _GatewayClosed:
            _log.info("ended")

    def _accompany(self, gateway: Gateway, systemd: Notifier | None, group: asyncio.TaskGroup) -> asyncio.Task[None]:
        """Starts what goes with the gateway. Returns the task that reloads."""

        def start(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
            return group.create_task(supervised(name, run), name=name)

        overview = gateway.overview
        if self.control is not None:
            group.create_task(self._answer(gateway, self.control), name="answer at the control socket")
        if self.files is not None:
            start("watch the configuration", partial(self.files.run, self.reloading.ask))
        sources = Sources(overview.status, overview.readiness, gateway.works, overview.figures)
        start("serve the pages", Serving(pages(sources), self.reloading.web).run)
        if systemd is not None:
            start("tell systemd", partial(systemd.follow, overview.report, gateway.changed))
            start("tell the watchdog", partial(systemd.reassure, gateway.works))
        return start("reload", partial(self.reloading.run, gateway, systemd))

    async def _answer(self, gateway: Gateway, path: Path) -> None:
        """Serves the control socket, which others may have, or whose directory may be wrong: that is no bug."""
        loop = asyncio.get_running_loop()

        def logged() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(gateway.changed.notify)

        def failed(error: Exception) -> None:
            if isinstance(error, OSError):
                _log.warning("`dpgateway status` can't ask this gateway: %s: %s", path, error)
            else:
                _log.error("a bug: the socket %s failed, and is made again", path, exc_info=error)

        log.recent().added = logged  # the status has the last events of the log
        subject = Subject(
            gateway.overview.status,
            gateway.changed,
            gateway.overview.readiness,
            lambda: gateway.configuration(self.reloading.web.value),
            serves=lambda: gateway.serves,
        )
        await retry(Control(path, subject).run, failed)


class _GatewayClosed(Exception):
    """The gateway has closed: the task group ends."""


def run(node_name: str, reloading: Reloading, files: FileWatch, control: Path, patience: Patience) -> None:
    """Runs the gateway until SIGTERM or SIGINT, and then as long as it lingers. The process ends meanwhile."""
    last_word = _last_word()
    keep_what_is_there()

    async def main() -> None:
        ending = Ending()
        signals.follow(ending.tell, reloading.ask)
        await Daemon(node_name, reloading, ending, patience, files, control, last_word).serve()
        log.finish(LAST_LINES)
        os._exit(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _last_word() -> Callable[[Abandon], None]:
    """Starts a thread that ends the process LAST_WORD seconds after it was given what is left to do.

    It is there from the start, because at the end the system may have no thread left.
    """
    given: queue.SimpleQueue[Abandon] = queue.SimpleQueue()

    def wait() -> None:
        abandon = given.get()
        time.sleep(LAST_WORD)
        with contextlib.suppress(Exception):
            abandon()
        _log.warning("something hangs, so the process ends without it")
        log.finish(LAST_LINES)
        os._exit(0)

    threading.Thread(target=wait, name="last word", daemon=True).start()
    return given.put

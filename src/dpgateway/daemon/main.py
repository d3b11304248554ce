"""The life of the process, from the given configuration to its exit.

:func:`run` starts an event loop, in which :class:`Daemon`

1. starts the gateway: from then on kubelets get their devices;
2. starts its companions: control socket, pages, systemd notifications, reloading. No device depends on them, so each is
   supervised: its failure is logged, and it is restarted;
3. waits for SIGTERM or SIGINT (``signals``), and with ``--linger`` until a successor serves (``ending``);
4. closes the gateway, while a watchdog thread ends the process after LAST_WORD seconds.

The process ends by ``os._exit``, because threads of drivers may hang. Only native code that holds the interpreter's
lock can prevent that; then systemd or the kubelet kills the process after its own grace period.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import grpc.aio
import uvloop

from dpgateway.daemon import signals
from dpgateway.daemon.control import Control, ControlSubject
from dpgateway.daemon.ending import Ending, Patience, linger
from dpgateway.daemon.files import FileWatch
from dpgateway.daemon.last_good import Keeping
from dpgateway.daemon.reloading import Reloading
from dpgateway.daemon.systemd import Notifier
from dpgateway.gateway import Gateway, supervised
from dpgateway.kit import log
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.memory import keep_what_is_there
from dpgateway.kit.tasks import first, retry
from dpgateway.web.pages import Sources, pages
from dpgateway.web.serving import Serving

LAST_WORD = 1.5
"""Timeout in seconds from the start of closing to ``os._exit``."""
LAST_LINES = 0.05
"""Timeout in seconds for writing the last lines of the log."""

Abandon = Callable[[], None]
"""The clean-up of last resort. Doesn't block."""

_log = log.bind(__name__)


@dataclass(frozen=True, slots=True)
class Daemon:
    """A gateway and its companions, in one event loop."""

    node_name: str
    reloading: Reloading
    """Also has the first configuration."""
    ending: Ending
    patience: Patience
    """The conditions of lingering."""
    files: FileWatch | None = None
    """The watch on the configuration's files, whose changes trigger a reload."""
    control: Path | None = None
    """The socket for ``dpgateway status``."""
    keeping: Keeping | None = None
    """Keeps the last good configuration."""
    closing: Callable[[Abandon], object] = lambda _: None
    """Called as the gateway begins to close."""

    async def serve(self) -> None:
        """Returns when the gateway has closed."""
        systemd = Notifier.take(os.environ)
        try:
            async with asyncio.TaskGroup() as group:
                gateway = Gateway(self.reloading.wanted, self.node_name, group)
                if (fallback := self.reloading.fallback) is not None:
                    gateway.overview.fell_back(fallback.problems, fallback.kept, whole=fallback.whole)
                await first(gateway.start(), self.ending.told.wait())  # told to end, it doesn't wait for a disk
                reloads = self._accompany(gateway, systemd, group)
                await self.ending.told.wait()
                if systemd is not None:
                    systemd.send("STOPPING=1")
                await linger(gateway, self.patience, self.ending.at_once)
                # reloads go on while it lingers, but must start nothing while it closes
                reloads.cancel()
                self.closing(gateway.abandon)
                await gateway.close()
                raise _GatewayClosed  # it ends the group
        except* _GatewayClosed:
            _log.info("ended")

    def _accompany(self, gateway: Gateway, systemd: Notifier | None, group: asyncio.TaskGroup) -> asyncio.Task[None]:
        """Starts the gateway's companions. Returns the reloading task."""

        def start(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
            return group.create_task(supervised(name, run), name=name)

        overview = gateway.overview
        if self.control is not None:
            group.create_task(self._answer(gateway, self.control), name="answer at the control socket")
        if self.files is not None:
            start("watch the configuration", partial(self.files.run, self.reloading.ask))
        if self.keeping is not None:
            start("keep the configuration", partial(self.keeping.run, gateway, self.reloading))
        web = self.reloading.web
        sources = Sources(
            overview.status, overview.readiness, gateway.works, overview.figures, lambda: web.value.metrics == "full"
        )
        start("serve the pages", Serving(pages(sources), web).run)
        if systemd is not None:
            start("tell systemd", partial(systemd.follow, overview.report, gateway.changed))
            start("tell the watchdog", partial(systemd.reassure, gateway.works))
        return start("reload", partial(self.reloading.run, gateway, systemd))

    async def _answer(self, gateway: Gateway, path: Path) -> None:
        """Serves the control socket. An OSError is no bug: the path may be taken, or its directory unsafe."""
        loop = asyncio.get_running_loop()
        complaint = Complaint(
            _log, "`dpgateway status` can't ask this gateway: %s", "`dpgateway status` can ask this gateway again"
        )

        def logged() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(gateway.changed.notify)

        def failed(error: Exception) -> None:
            if isinstance(error, OSError):
                complaint.say(f"{path}: {error.strerror or error}")
            else:
                _log.error("a bug: the socket %s failed, and is made again", path, exc_info=error)

        log.recent().added = logged  # the status has the last events of the log
        subject = ControlSubject(
            gateway.overview.status,
            gateway.changed,
            gateway.overview.readiness,
            lambda: gateway.configuration(self.reloading.wanted),
            serves=lambda: gateway.serves,
        )
        await retry(Control(path, subject, kept=complaint.over).run, failed)


class _GatewayClosed(Exception):
    """Ends the task group once the gateway has closed."""


def run(daemon: Daemon) -> None:
    """Runs the gateway until SIGTERM or SIGINT and the end of lingering, then ends the process. Never returns."""
    armed: queue.SimpleQueue[Abandon] = queue.SimpleQueue()

    def last_word() -> None:
        abandon = armed.get()
        time.sleep(LAST_WORD)
        with contextlib.suppress(Exception):
            abandon()
        _log.warning("something hangs, so the process ends without it")
        log.finish(LAST_LINES)
        os._exit(0)

    # The watchdog starts early, because at the end the system may have no thread left. Closing arms it.
    threading.Thread(target=last_word, name="last word", daemon=True).start()
    keep_what_is_there()

    async def main() -> None:
        signals.follow(daemon.ending.tell, daemon.reloading.ask)
        # grpc.aio shuts down with its last channel or server, perhaps in a garbage collection, and waits there for its
        # thread: with grpcio 1.85 now and then for ever. So it is held for the life of the process.
        grpc.aio.init_grpc_aio()
        await replace(daemon, closing=armed.put).serve()
        log.finish(LAST_LINES)
        os._exit(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

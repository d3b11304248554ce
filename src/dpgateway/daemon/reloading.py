"""Reloads the configuration while the gateway runs: reads it again, refuses what is wrong with it, applies the rest.

It is one task. SIGHUP and the watch over the files ask for a reload; all who ask before it begins get the same one.
Files are read and configurations compared on a thread, because a disk may hang, and drivers check their options. A
configuration that is refused changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dpgateway.config import (
    Configuration,
    InvalidConfiguration,
    changes,
    in_lines,
    restart_keys,
)
from dpgateway.daemon.systemd import Notifier
from dpgateway.errors import NoThread, describe
from dpgateway.gateway import Gateway
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads

T = TypeVar("T")

LONG = 30.0
"""Seconds after which the log says that reading the configuration takes long."""

_log = bind(__name__)


class Reloading:
    """Used from the event loop."""

    def __init__(self, first: Configuration, read: Callable[[], Configuration]) -> None:
        """``first`` is served. ``read`` returns what is to be served now, or raises InvalidConfiguration."""
        self.wanted, self._read = first, read
        self.web = Observable(first.web)
        """What the configuration says of the pages."""
        self._threads = Threads(idle=0)  # it is needed seldom
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Has the configuration read again."""
        self._asked.set()

    async def run(self, gateway: Gateway, systemd: Notifier | None) -> None:
        """Reloads when asked to, until it is cancelled. Raises NoThread; run again, it tries that reload again."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                with systemd.reloading() if systemd is not None else contextlib.nullcontext():
                    await self._reload(gateway)
            except NoThread:
                self.ask()
                raise

    async def _reload(self, gateway: Gateway) -> None:
        _log.info("reading the configuration again")
        try:
            new = await self._on_thread("read the configuration", self._read)
        except InvalidConfiguration as error:
            lines = list(in_lines(error.problems))
            gateway.overview.refuse(lines)
            for line in lines:
                _log.error("%s", line)
            count = f"{len(error.problems)} problem{'s' if len(error.problems) != 1 else ''}"
            _log.error("the new configuration is refused because of %s; the old one goes on", count)
        except NoThread as error:
            gateway.overview.refuse([str(error)])
            raise
        except Exception as error:
            gateway.overview.refuse([f"a bug of the gateway: {describe(error)}"])
            _log.exception("a bug: the configuration can't be read again, so the old one goes on: %s", error)
        else:
            await self._apply(new, gateway)

    async def _apply(self, new: Configuration, gateway: Gateway) -> None:
        # Directories and sockets are opened once. What was wanted of them first stays, so that each reload says so.
        for key in restart_keys(self.wanted, new):
            _log.warning("%s changes with the next start of the gateway only", key)
        self.wanted = replace(self.wanted, resources=new.resources, web=new.web)

        pages_changed = self.web.set(new.web)
        old = gateway.resources
        found = await self._on_thread("compare configurations", lambda: changes(old, new.resources))
        await gateway.apply(found, [resource.name for resource in new.resources])
        gateway.overview.took_over()

        for one in found.unusable:
            text = "resource %s goes on as before, because its new configuration can't be used: %s"
            _log.error(text, one.name, one.failure, extra={"resource": one.name, "driver": one.driver})
        said = "; ".join(filter(None, (str(found), "taken over: web" if pages_changed else "")))
        _log.info("the configuration was read again; %s", said or "nothing changed")

    async def _on_thread(self, name: str, function: Callable[[], T]) -> T:
        future = self._threads.call(name, function)
        if not (await asyncio.wait({future}, timeout=LONG))[0]:
            _log.error("the old configuration goes on, because to %s has taken %g s by now", name, LONG)
        return await future

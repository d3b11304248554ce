"""Reloads the configuration of the running gateway: reads it, refuses an invalid one, applies the changes.

It is one task. SIGHUP and the file watch request a reload; requests before it begins are merged. Files are read and
configurations compared on a thread, because a disk may hang, and drivers validate their options. A refused
configuration changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from dpgateway.config import Configuration, InvalidConfiguration, in_lines, restart_keys
from dpgateway.config.changes import changes
from dpgateway.daemon.systemd import Notifier
from dpgateway.errors import NoThread, describe
from dpgateway.gateway import Gateway
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.threads import Threads

T = TypeVar("T")

LONG = 30.0
"""Seconds after which the log reports a slow reload."""

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class Fallback:
    """What the last good configuration is served for at the start."""

    problems: tuple[str, ...]
    """Of the configuration that was read."""
    kept: str
    """When the last good one was kept: RFC 3339, UTC."""
    whole: bool
    """Whether it is served as a whole; else only for the resources of ``problems``."""


class Reloading:
    """Used from the event loop."""

    def __init__(
        self, first: Configuration, read: Callable[[], Configuration], fallback: Fallback | None = None
    ) -> None:
        """``first``: the present configuration. ``read`` returns the new one, or raises InvalidConfiguration.
        ``fallback``: set if ``first`` isn't what was read at the start.
        """
        self.wanted, self.fallback, self._read = first, fallback, read
        self.web = Observable(first.web)
        """The configuration of the pages."""
        self.applied = Signal()
        """Notified when a new configuration has been applied."""
        self._threads = Threads(idle=0)  # reloads are rare
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Requests a reload."""
        self._asked.set()

    async def run(self, gateway: Gateway, systemd: Notifier | None) -> None:
        """Reloads on request, until cancelled. Raises NoThread; the next run then repeats that reload."""
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
        # Directories and sockets are opened once. ``wanted`` keeps their first keys, so that each reload warns.
        for key in restart_keys(self.wanted, new):
            _log.warning("%s changes with the next start of the gateway only", key)
        dra, cluster, before = new.dra, new.cluster, self.wanted
        if before.dra.driver is not None:
            dra = replace(dra, driver=before.dra.driver)
        if before.dra.driver is not None or before.cluster.events:
            cluster = replace(before.cluster, events=cluster.events)
        self.wanted = replace(self.wanted, resources=new.resources, web=new.web, dra=dra, cluster=cluster)

        pages_changed = self.web.set(new.web)
        old = gateway.resources
        found = await self._on_thread("compare configurations", lambda: changes(old, new.resources))
        await gateway.apply(found, new)
        text = "resource %s goes on as before, because its new configuration can't be used: %s"
        gateway.overview.took_over([text % (one.name, one.failure) for one in found.unusable])
        self.applied.notify()

        for one in found.unusable:
            _log.error(text, one.name, one.failure, extra={"resource": one.name, "driver": one.driver})
        said = "; ".join(filter(None, (str(found), "taken over: web" if pages_changed else "")))
        _log.info("the configuration was read again; %s", said or "nothing changed")

    async def _on_thread(self, name: str, function: Callable[[], T]) -> T:
        future = self._threads.call(name, function)
        if not (await asyncio.wait({future}, timeout=LONG))[0]:
            _log.error("the old configuration goes on: it still waits to %s, after %g s", name, LONG)
        return await future

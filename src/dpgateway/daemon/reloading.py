"""Takes a new configuration over while the gateway runs: reads it, refuses what is wrong with it, applies the rest.

What is read runs on threads, because a file may be on a disk that hangs, and because drivers check their options.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from dpgateway.config import (
    Changes,
    Configuration,
    InvalidConfiguration,
    Problem,
    changes,
    fixed,
    in_lines,
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
    """One task: :meth:`run`. Used from the event loop."""

    def __init__(self, first: Configuration, read: Callable[[], Configuration]) -> None:
        """``first`` is served. ``read`` returns what is to be served now, or raises InvalidConfiguration."""
        self.wanted, self._read = first, read
        self.web = Observable(first.web)
        """What is wanted of the pages."""
        self._threads = Threads(idle=0)  # it is needed seldom
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """The configuration is to be read again; once for all who ask before that begins."""
        self._asked.set()

    async def run(self, gateway: Gateway, systemd: Notifier | None) -> None:
        """Takes over what is asked for, until it is cancelled. Raises NoThread; run again, it tries that again."""
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
            gateway.overview.refuse(in_lines(error.problems))
            _tell_of(error.problems)
        except NoThread as error:
            gateway.overview.refuse([str(error)])
            raise
        except Exception as error:
            gateway.overview.refuse([f"a bug of the gateway: {describe(error)}"])
            _log.exception("a bug: the configuration can't be read again, so the old one goes on: %s", error)
        else:
            for key in fixed(self.wanted, new):
                _log.warning("%s changes with the next start of the gateway only", key)
            self.wanted = replace(self.wanted, resources=new.resources, web=new.web)
            if moved := new.web != self.web.value:
                self.web.set(new.web)
            found = await self._apply(gateway)
            gateway.overview.took_over()
            self._tell(found, *(["taken over: web"] if moved else []))

    async def _apply(self, gateway: Gateway) -> Changes:
        old, new = gateway.resources, self.wanted.resources
        found = await self._on_thread("compare configurations", lambda: changes(old, new))
        await gateway.apply(found, [resource.name for resource in new])
        return found

    async def _on_thread(self, name: str, function: Callable[[], T]) -> T:
        future = self._threads.call(name, function)
        if not (await asyncio.wait({future}, timeout=LONG))[0]:
            _log.error("the old configuration goes on, because to %s has taken %g s by now", name, LONG)
        return await future

    @staticmethod
    def _tell(found: Changes, *more: str) -> None:
        for one in found.unusable:
            text = "resource %s goes on as before, because its new configuration can't be used: %s"
            _log.error(text, one.name, one.failure, extra={"resource": one.name, "driver": one.driver})
        said = "; ".join(filter(None, (str(found), *more)))
        _log.info("the configuration was read again; %s", said or "nothing changed")


def _tell_of(problems: Sequence[Problem]) -> None:
    for line in in_lines(problems):
        _log.error("%s", line)
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
    _log.error("the new configuration is refused because of %s; the old one goes on", count)

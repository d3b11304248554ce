"""The gateway: one process, many resources. Watches the kubelet's directory for all of them; decides nothing itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dpgateway.config import Configuration
from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.front import LONGEST_PAUSE, WRITING, Node, Unit
from dpgateway.deviceplugin.registration.client import KubeletClient
from dpgateway.deviceplugin.resource import only
from dpgateway.errors import KubeletError
from dpgateway.node import checkpoint
from dpgateway.node.directory import Absence, is_there, read_checkpoint
from dpgateway.node.incarnation import Change, SocketFile
from dpgateway.node.watch import SOCKET, DirectoryWatch
from dpgateway.process.systemd import Report, report

GRACE = 1.0
"""Seconds that Allocates in flight have at the end."""
CLOSING = 0.5
"""Seconds that a driver has to close."""
READING = 0.1
"""Seconds from a change of the kubelet's checkpoint to its reading. Before anything is dropped it is read anyway."""

_log = logging.getLogger(__name__)


class Gateway:
    """Everything that the resources share."""

    def __init__(
        self,
        configuration: Configuration,
        directory: Path,
        node_name: str,
        group: asyncio.TaskGroup,
    ) -> None:
        apis = only(configuration.kubelet.apis, APIS)
        self._node = Node(node_name, directory, apis, KubeletClient(directory), group, self.read_checkpoint)
        self._absence = Absence(directory)
        self._watch = DirectoryWatch(directory, self._look, self._read_soon)
        self._complaint = ""
        self._reading: asyncio.TimerHandle | None = None
        self.units = [Unit(config, self._node) for config in configuration.resources]

    def start(self) -> None:
        self.read_checkpoint()
        self._spawn("watch the kubelet", self._watch.run)
        for unit in self.units:
            self._spawn(f"{unit.name} driver", unit.driver.run)
            self._spawn(f"{unit.name} serve", unit.persist)
            self._spawn(f"{unit.name} news", unit.news.follow)
        number = f"{len(self.units)} resource{'s' if len(self.units) != 1 else ''}"
        _log.info("serving %s to the kubelet of %s", number, self._node.directory)

    def _spawn(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._node.group.create_task(supervised(name, run), name=name)

    def report(self) -> Report:
        return report([unit.standing() for unit in self.units], kubelet=self._node.incarnations.there)

    # the kubelet's directory

    def _look(self, created: bool) -> None:
        if is_there(self._node.directory):
            self._node.directory_there.set()
        found = SocketFile.look(self._node.directory / SOCKET)
        self._absence.look(there=found is not None)
        streaming = any(unit.registrar.streaming for unit in self.units)
        change = self._node.incarnations.see(found, created=created, streaming=streaming)
        if change is Change.NEW:
            _log.info("a kubelet appeared on %s", self._node.directory / SOCKET)
            self._node.client.new_kubelet()
            for unit in self.units:
                unit.offering.new_kubelet(found.ctime / 1e9 if found else time.time())
            self.read_checkpoint()  # the directory may have come with its kubelet: whose ids must be on the first list
        for unit in self.units:
            _CHANGES[change](unit)

    def _read_soon(self) -> None:
        """Once for many changes: a kubelet that starts writes its checkpoint for each resource that returns to it."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().call_later(READING, self.read_checkpoint)

    def read_checkpoint(self) -> None:
        """Tells every resource what the kubelet holds of it."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        holdings: checkpoint.Holdings | None = None
        written = 0.0
        try:
            raw, written = read_checkpoint(self._node.directory)
            holdings = checkpoint.holdings(raw)
            self._complaint = ""
        except FileNotFoundError:
            self._missing()
            return
        except (OSError, KubeletError) as error:
            self._complain(f"nothing is dropped from any list, for the checkpoint can't be read: {error}", written)
        for unit in self.units:
            near = {} if holdings is None else holdings.get(unit.name, {})
            unit.offering.hold(None if holdings is None else frozenset(near), written, near)

    def _complain(self, text: str, written: float) -> None:
        """Once; and not about a file that a kubelet may be writing: 1.8 and 1.9 do so in place."""
        if time.time() - written > WRITING and text != self._complaint:
            self._complaint = text
            _log.warning("%s", text)

    def _missing(self) -> None:
        """A kubelet that allocated something wrote the file; one that vanished says nothing about what it said."""
        for unit in self.units:
            unit.offering.checkpoint_missing()

    # the end

    async def close(self) -> None:
        """Lets Allocates finish, then ends the streams, the servers and the drivers, all at once."""
        for unit in self.units:
            unit.registrar.stop()
            unit.offering.close()
        await asyncio.gather(*(unit.endpoint.drain(GRACE) for unit in self.units))
        await asyncio.gather(
            *(unit.endpoint.close() for unit in self.units),
            *(unit.driver.close(CLOSING) for unit in self.units),
            return_exceptions=True,
        )
        await self._node.client.close()

    def abandon(self) -> None:
        for unit in self.units:
            unit.endpoint.abandon()


def _new(unit: Unit) -> None:
    if unit.ready:
        unit.registrar.kubelet_new()


def _back(unit: Unit) -> None:
    if unit.ready:
        unit.registrar.kubelet_back()


_CHANGES: dict[Change, Callable[[Unit], None]] = {
    Change.NEW: _new,
    Change.GONE: lambda unit: unit.registrar.kubelet_gone(),
    Change.BACK: _back,
    Change.NONE: lambda _: None,
}


async def supervised(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """A bug in one task is logged, and the task starts again; it doesn't end the others."""
    pause = 1.0
    while True:
        began = time.monotonic()
        try:
            await run()
        except Exception:
            _log.exception("a bug: %s failed, and starts again", name)
        else:
            return
        pause = 1.0 if time.monotonic() - began > LONGEST_PAUSE else min(LONGEST_PAUSE, 2 * pause)
        await asyncio.sleep(pause)

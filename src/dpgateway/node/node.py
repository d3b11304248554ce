"""What one node's kubelet tells: whether it is there, which incarnation of it, and what its containers hold.

Anyone may watch the holdings, and whoever allocates publishes there what is in flight. Whoever makes the node is called
when a kubelet comes or goes. The node knows no front.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dpgateway.errors import KubeletError
from dpgateway.node import checkpoint
from dpgateway.node.directory import SOCKET, Absence, is_there, read_checkpoint
from dpgateway.node.holdings import Holdings, Note
from dpgateway.node.incarnation import Change, Incarnations, SocketFile
from dpgateway.node.watch import DirectoryWatch
from dpgateway.process.log import bind
from dpgateway.process.observable import Observable

READING = 0.1
"""Seconds from a change of the kubelet's checkpoint until it is read. Before an id is dropped it is read anyway."""
WRITING = 1.0
"""Seconds that a kubelet takes at most to write its checkpoint. A file that is damaged for longer stays damaged until
the kubelet writes it again; a kubelet that started from a damaged file has forgotten what the file said."""

_log = bind(__name__)


class Node:
    """Used from the event loop."""

    def __init__(
        self,
        name: str,
        directory: Path,
        resources: Iterable[str],
        changed: Callable[[Change], None],
        streaming: Callable[[], bool],
    ) -> None:
        """``changed`` gets what became of ``kubelet.sock``; ``streaming`` says whether a kubelet's stream is open."""
        self.name = name
        self.directory = directory
        """The kubelet's device-plugins directory."""
        self.there = asyncio.Event()
        """Set once there is such a directory."""
        self.holdings = {resource: Observable(Holdings()) for resource in resources}
        """By resource."""
        self._changed, self._streaming = changed, streaming
        self._incarnations = Incarnations()
        self._absence = Absence(directory)
        self._watch = DirectoryWatch(directory, self._look, self._read_soon)
        self._reading: asyncio.TimerHandle | None = None
        self._complaint = ""

    @property
    def kubelet(self) -> bool:
        """Whether there is a kubelet's socket, as far as the last look told."""
        return self._incarnations.there

    async def run(self) -> None:
        """Watches until it is cancelled."""
        self.read_checkpoint()
        try:
            await self._watch.run()
        finally:
            self._absence.close()
            self._read_no_more()

    def _look(self, created: bool) -> None:
        if is_there(self.directory):
            self.there.set()
        found = SocketFile.look(self.directory / SOCKET)
        self._absence.look(there=found is not None)
        change = self._incarnations.see(found, created=created, streaming=self._streaming())
        if change is Change.NEW:
            _log.info("a kubelet appeared on %s", self.directory / SOCKET)
            since = found.ctime / 1e9 if found else time.time()
            self._publish(lambda _, holdings: holdings.new_kubelet(since))
            # the directory may have come with its kubelet, and the first list must have what containers hold
            self.read_checkpoint()
        if change is not Change.NONE:
            self._changed(change)

    # the checkpoint

    def _read_soon(self) -> None:
        """Reads once for many changes: a starting kubelet writes its checkpoint for each resource that registers."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().call_later(READING, self.read_checkpoint)

    def _read_no_more(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def read_checkpoint(self) -> None:
        """Publishes what the kubelet wrote down of each resource."""
        self._read_no_more()
        notes: Mapping[str, Note] | None = None
        written, now = 0.0, time.time()
        try:
            raw, written = read_checkpoint(self.directory)
            notes = checkpoint.notes(raw)
            self._complaint = ""
        except FileNotFoundError:
            self._publish(lambda _, holdings: holdings.missing(now))
            return
        except (OSError, KubeletError) as error:
            self._complain(f"no id is dropped from any list, because the checkpoint can't be read: {error}", written)
        self._publish(
            lambda resource, holdings: holdings.noted(None if notes is None else notes.get(resource, {}), written, now)
        )

    def _publish(self, change: Callable[[str, Holdings], Holdings]) -> None:
        for resource, holdings in self.holdings.items():
            holdings.publish(change(resource, holdings.value))

    def _complain(self, text: str, written: float) -> None:
        """Logs ``text`` once, but not while a kubelet may be writing the file: 1.8 and 1.9 write it in place."""
        if time.time() - written > WRITING and text != self._complaint:
            self._complaint = text
            _log.warning("%s", text)

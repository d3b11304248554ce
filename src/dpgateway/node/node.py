"""One node's kubelet: whether it is there, which incarnation of it, and when it may have written its checkpoint.

Its owner is called when a kubelet comes or goes. The node knows no front, and what containers hold is the front's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable, Signal
from dpgateway.node.checkpoint import WRITING
from dpgateway.node.directory import SOCKET, Absence, is_there, stamped
from dpgateway.node.incarnation import Change, Incarnations, SocketFile
from dpgateway.node.watch import DirectoryWatch

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another text after each boot of the node (proc_sys_kernel(5)); the same in its containers."""

_log = bind(__name__)


class Node:
    """Used from the event loop."""

    def __init__(
        self,
        directory: Path,
        changed: Callable[[Change], None],
        streaming: Callable[[], bool],
        read: Callable[[], Awaitable[None]],
    ) -> None:
        """``changed`` gets what became of ``kubelet.sock``; ``streaming`` says whether a kubelet's stream is open;
        ``read`` returns when its checkpoint, as it is after the call, has been read.
        """
        self.directory = directory
        """The kubelet's device-plugins directory."""
        self.there = asyncio.Event()
        """Set once there is such a directory."""
        self._changed, self._streaming, self._read = changed, streaming, read
        self._incarnations = Incarnations()
        self._absence = Absence(directory)
        self.written = Signal()
        """When the kubelet may have written its checkpoint."""
        self._watch = DirectoryWatch(directory, self._look, self.written.notify)
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self.appearances = 0
        """How many kubelets have appeared."""
        self.appeared: Observable[tuple[float, str] | None] = Observable(None)
        """When this kubelet appeared, and which incarnation it is; told before ``changed`` is called."""
        self.kubelet = False
        """Whether there is a kubelet's socket, as ``changed`` was told last."""
        self.since = time.monotonic()
        """When it appeared or went, or when this process began to look."""

    async def run(self) -> None:
        """Watches until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_changes(), name="what became of kubelet.sock")
                group.create_task(self._watch.run(), name="watch the directory")
        finally:
            self._absence.close()

    @property
    def incarnation(self) -> str:
        """Which kubelet was there last; empty if none ever was."""
        return self.appeared.value[1] if self.appeared.value else ""

    def _look(self, created: bool) -> None:
        if is_there(self.directory):
            self.there.set()
        found = SocketFile.look(self.directory / SOCKET)
        self._absence.look(there=found is not None)
        change = self._incarnations.see(found, created=created, streaming=self._streaming())
        if change is Change.NEW:
            self.appearances += 1
            _log.info("a kubelet appeared on %s", self.directory / SOCKET)
            self.since = stamped(found.ctime / 1e9) if found else time.monotonic()
            self.appeared.set((self.since, str(found)))
        if change in (Change.GONE, Change.BACK):
            self.since = time.monotonic()
        if change is not Change.NONE:
            self._changes.put_nowait(change)

    async def _follow_changes(self) -> None:
        while True:
            for change in await self._news():
                self.kubelet = change is not Change.GONE
                self._changed(change)

    async def _news(self) -> tuple[Change, ...]:
        """What became of ``kubelet.sock``, and once there is a new kubelet also what its containers hold is known: its
        directory may have come with it, and the first list must have these ids.

        Of kubelets that came and went meanwhile only the last is told of. If each were, the last would get a Register
        for every one of them, and each of these ends the streams and the calls of the one before.
        """
        news, looked_at = [await self._changes.get()], 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WRITING):
                while Change.NEW in news[looked_at:]:
                    looked_at = len(news)
                    await self._read()
                    while not self._changes.empty():
                        news.append(self._changes.get_nowait())
        return tuple(dict.fromkeys([Change.NEW, news[-1]] if Change.NEW in news else news))


def boot() -> str:
    """Which boot of the node this is; empty if it can't be read."""
    try:
        return BOOT.read_text(errors="replace").strip()
    except OSError:
        return ""

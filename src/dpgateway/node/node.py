"""One node's kubelet: its presence, its incarnation, and the times when it may have written its checkpoint.

Theory of operation
    - The directory watch triggers looks at ``kubelet.sock``. ``_incarnations`` turns each look into a ``Change``, which
      is queued (``_changes``).
    - A task takes the changes from the queue, and waits for the checkpoint to be read before it reports a new kubelet:
      that kubelet's first list must have the held ids. Kubelets that came and went meanwhile are skipped.
    - ``appeared`` is set at the look, ``kubelet`` with the report; in between they may differ.
    - The node is independent of the fronts. A front is called back for changes, and keeps the holdings.
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
"""A random id, new at each boot of the node (proc_sys_kernel(5)); the same in its containers."""

_log = bind(__name__)


class Node:
    """The kubelet of one directory. Used from the event loop."""

    def __init__(
        self,
        directory: Path,
        changed: Callable[[Change], None],
        streaming: Callable[[], bool],
        read: Callable[[], Awaitable[None]],
    ) -> None:
        """``changed`` gets the changes of ``kubelet.sock``; ``streaming`` returns whether a kubelet's stream is open;
        ``read`` reads the checkpoint, and returns when the present one has been read.
        """
        self.directory = directory
        """The kubelet's device-plugins directory."""
        self.there = asyncio.Event()
        """Set once the directory exists."""
        self._changed, self._streaming, self._read = changed, streaming, read
        self._incarnations = Incarnations()
        self._absence = Absence(directory)
        self.written = Signal()
        """Notified when the kubelet may have written its checkpoint."""
        self._watch = DirectoryWatch(directory, self._look, self.written.notify)
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._telling = False
        """Whether changes were taken from the queue that ``changed`` doesn't know yet."""
        self.appearances = 0
        """Number of incarnations seen."""
        self.appeared: Observable[tuple[float, str] | None] = Observable(None)
        """The time of this kubelet's appearance, in seconds of the monotonic clock, and its incarnation; set before
        ``changed`` is called."""
        self.kubelet = False
        """Whether there is a kubelet's socket, by the last call of ``changed``."""
        self.since = time.monotonic()
        """The time at which the kubelet appeared or went, or at which this process started."""

    async def run(self) -> None:
        """Watches until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_changes(), name="what became of kubelet.sock")
                group.create_task(self._watch.run(), name="watch the directory")
        finally:
            self._absence.close()

    @property
    def incarnation(self) -> str:
        """The last kubelet's incarnation; empty if there was none."""
        return self.appeared.value[1] if self.appeared.value else ""

    def changing(self) -> bool:
        """Looks at kubelet.sock; whether it has changed, and ``changed`` is called within WRITING."""
        self._look(created=False)
        return self._telling or not self._changes.empty()

    def _look(self, created: bool) -> None:
        if is_there(self.directory):
            self.there.set()
        found = SocketFile.look(self.directory / SOCKET)
        self._absence.look(there=found is not None)
        change = self._incarnations.see(found, created=created, streaming=self._streaming())
        if change is Change.NEW:
            self.appearances += 1
            _log.info("a kubelet appeared on %s", self.directory / SOCKET)
            # The file's time, because this process may have started long after the kubelet.
            self.since = stamped(found.ctime / 1e9) if found else time.monotonic()
            self.appeared.set((self.since, str(found)))
        if change in (Change.GONE, Change.BACK):
            self.since = time.monotonic()
        if change is not Change.NONE:
            self._changes.put_nowait(change)

    async def _follow_changes(self) -> None:
        try:
            while True:
                for change in await self._news():
                    self.kubelet = change is not Change.GONE
                    self._changed(change)
                self._telling = False
        finally:
            self._telling = False

    async def _news(self) -> tuple[Change, ...]:
        """The next changes. For a new kubelet, returns once the checkpoint was read: the directory may have come with
        it, and the first list must have the held ids.

        Of the kubelets that came and went meanwhile, only the last is reported. Otherwise the last would get a Register
        for each of them, and every Register ends the streams and calls of the one before.
        """
        news, looked_at = [await self._changes.get()], 0
        self._telling = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WRITING):
                while Change.NEW in news[looked_at:]:
                    looked_at = len(news)
                    await self._read()
                    while not self._changes.empty():
                        news.append(self._changes.get_nowait())
        return tuple(dict.fromkeys([Change.NEW, news[-1]] if Change.NEW in news else news))


def boot() -> str:
    """The id of the node's present boot; empty if it can't be read."""
    try:
        return BOOT.read_text(errors="replace").strip()
    except OSError:
        return ""

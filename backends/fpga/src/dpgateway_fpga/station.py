"""One board, shared by all resources of this process.

Theory. At most one job programs the board at a time; ``job`` and ``begun`` change under the lock. Watchers are notified
after each start and end, outside the lock, because they read both. At the end of a job the order is: ``job`` is
cleared, watchers are notified, and only then its waiters wake, so that they find the health up to date.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary

from dpgateway import Busy
from dpgateway_fpga.boards import Bitstream
from dpgateway_fpga.programmers import Progress


@dataclass(eq=False)
class ProgrammingJob:
    """One run of programming. It goes on without a waiter, because hardware can't be interrupted."""

    bitstream: Bitstream
    resource: str
    step: str = "beginning"
    began: float = field(default_factory=time.monotonic)
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def tell(self, step: str) -> None:
        self.step = step

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        return f"is being programmed with {self.bitstream.id} as {self.resource} for {seconds:.0f} s: {self.step}"


class StationListener(Protocol):
    """A listener for the beginning and the end of a board's jobs."""

    def station_changed(self) -> None: ...


class Station:
    """The jobs of one board, and their watchers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.job: ProgrammingJob | None = None
        """The job under way; None if the board is idle."""
        self.begun = 0
        """The number of jobs begun so far."""
        self._watchers: WeakSet[StationListener] = WeakSet()

    def watch(self, watcher: StationListener) -> None:
        with self._lock:
            self._watchers.add(watcher)

    def leave(self, watcher: StationListener) -> None:
        with self._lock:
            self._watchers.discard(watcher)

    def begin(self, job: ProgrammingJob, work: Callable[[Progress], None]) -> ProgrammingJob:
        """Starts the job, or joins one under way with the same bitstream for the same resource, and returns it. Raises
        Busy if another one is under way, or if no thread can be started.
        """
        with self._lock:
            if (now := self.job) is not None:
                # the journal will name its resource, which alone may blank the board
                if (now.bitstream, now.resource) != (job.bitstream, job.resource):
                    raise Busy(f"it {now}")
                return now
            # started under the lock, which _run needs at its end: it can't clear the job before the job is set
            thread = threading.Thread(target=self._run, args=(job, work), name="program a board", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise Busy(f"there is no thread for it: {error}") from error
            self.job = job
            self.begun += 1
        self._tell()
        return job

    def _run(self, job: ProgrammingJob, work: Callable[[Progress], None]) -> None:
        try:
            work(job.tell)
        except BaseException as error:  # raised by the waiters
            job.error = error
        with self._lock:
            self.job = None
        self._tell()
        job.ended.set()

    def _tell(self) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.station_changed()


_stations: WeakValueDictionary[tuple[Path, str], Station] = WeakValueDictionary()
_making = threading.Lock()


def station(state_dir: Path, board: str) -> Station:
    """This process's station of a board. Resources have no reference to each other, so they share it here."""
    with _making:
        return _stations.setdefault((state_dir, board), Station())

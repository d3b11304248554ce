"""One board as one resource offers it: its health, programming, and retries.

Theory. Resources of one pool may share a board, each with its own slot. All slots of a board share a *station*, where
one job programs the board at a time; its start and its end change the health in every slot. The board's image is
recorded in the journal, not here. A slot keeps three things:

- the health as listed, which stays during a job of this resource: a fault lasts until programming ends;
- why the bitstream is *refused*: its file can't be used, whatever the board's state. That is this resource's fault
  alone, and ends when the file is good again. Until then a check of the file is always planned or under way, whatever
  else happens to the board;
- the *retries* of failures that may pass. A container's start makes an attempt at once in any case.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dpgateway import Busy, Context, Device, DriverError, Health
from dpgateway_fpga.boards import Bitstream, Board
from dpgateway_fpga.ensuring import Meanwhile, Refused, Work, may_pass
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers import Progress, said
from dpgateway_fpga.reader import PatientReader
from dpgateway_fpga.retrying import BoardRetries
from dpgateway_fpga.station import ProgrammingJob, station


class Slot:
    """A board is Unhealthy, in all resources that offer it, from a failed attempt until one succeeds."""

    def __init__(self, work: Work, options: FpgaOptions, context: Context) -> None:
        self.board, self._work, self._options, self._context = work.board, work, options, context
        self._device = work.board.device()
        self._reader = PatientReader("its state", partial(work.programmer.read, work.board), context.changed)
        self._station = station(options.state_dir, work.board.key)
        no_retry = partial(context.log.warning, "board %s isn't tried again before the next list: %s", work.board.id)
        self._retries = BoardRetries(options, self._try_again, no_retry)
        self._unknown = unknown(work.board, options)
        self._looking = threading.Lock()
        """Held from the beginning of a look until its health is noted: the station's threads look, too, and one that
        had looked before a failure would otherwise note its health after it.
        """
        self._health = Health.healthy()
        self._refused = ""
        """Why the bitstream can't be programmed onto this board; empty if it can."""
        self._looks_again = False
        """Whether another list was requested because the board appeared since the last look; requested once."""
        self._station.watch(self)
        if self._station.job is not None:  # of the driver before a reload, whose journal hides an earlier fault
            self._health = Health.unhealthy("nothing is known of it until its programming has ended")

    # the list

    def device(self) -> Device:
        with self._looking:
            self._health = health = self._look()
        if health.reason == self._unknown and not self._looks_again:
            self._looks_again = True
            self._context.changed()

        # a retry that an earlier driver left in the journal, or for which there was no thread
        entry = self._work.entry()
        ours = entry is not None and entry.state == "faulted" and entry.resource == self._work.resource
        again = ours and entry is not None and entry.again
        if (again or self._refused) and self._station.job is None:
            self._retries.plan()
        return replace(self._device, health=health)

    def station_changed(self) -> None:
        """Programming began or ended, possibly for another resource."""
        self._note(self._look)

    def _note(self, look: Callable[[], Health]) -> None:
        with self._looking:
            before, self._health = self._health, look()
            changed = self._health != before
        if changed:
            self._context.changed()

    def _look(self) -> Health:
        """The health now. During a job the journal shows no fault, so a look is repeated if a job began or ended in it;
        the count of begun jobs reveals one that did both.
        """
        station, seen, health = self._station, None, None
        while health is None or seen != (station.begun, station.job):
            seen = station.begun, station.job
            health = self._health_during(seen[1])
        return health

    def _health_during(self, job: ProgrammingJob | None) -> Health:
        refused = self._refused
        if job is not None and job.resource != self._work.resource:
            return Health.unhealthy(f"it is being programmed with {job.bitstream.id} as {job.resource}")
        if job is not None:  # a fault lasts until it ends
            # a hung process is left behind by then, but a hung read, of /sys or of the bitstream, isn't
            longest = self._options.patience.total_seconds()
            if time.monotonic() - job.began <= longest:
                return self._health
            why = f"programming {job.bitstream.id} hasn't ended after {longest:g} s: {job.step}"
            return Health.unhealthy(why)
        # a refused file doesn't matter to a board that runs the bitstream already, which only a digest can tell
        pinned = self._options.chosen.sha256
        if refused and (pinned is None or not self._work.runs(pinned)):
            return Health.unhealthy(f"programming {self._options.chosen.id} failed: {refused}")
        found = said(self._reader)
        if found.state == "absent" and self._work.entry() is not None:
            self._work.gone()

        # a fallback image, or an attempt that touched nothing, is a fault only for the resource whose bitstream failed
        entry, fault = self._work.entry(), ""
        if entry is not None and entry.reason:
            ours = entry.resource == self._work.resource
            if entry.state == "faulted" and (entry.touched or ours):
                fault = f"programming {entry.bitstream} failed: {entry.reason}"
            elif entry.state != "faulted" and ours:
                fault = f"{entry.reason}; it runs {entry.bitstream}"
        reason = fault or found.fault or self._unknown or self._work.journal.trouble(self.board.key)
        return Health.unhealthy(reason) if reason else Health.healthy()

    def preference(self) -> tuple[int, tuple[int, ...], str]:
        """The sort key, best first: boards with the bitstream, blank or unprogrammed ones, others; then NUMA nodes."""
        entry, ours, blank = self._work.entry(), self._options.chosen, self._options.blank
        rank = 2
        if entry is None or (blank is not None and entry.bitstream == blank.id):
            rank = 1
        elif entry.state == "loaded" and entry.bitstream == ours.id and ours.sha256 in (None, entry.sha256):
            rank = 0
        return rank, self._device.numa_nodes, self.board.id

    @property
    def has_our_image(self) -> bool:
        """Whether the board was last programmed for a container of this resource, with success."""
        entry, blank = self._work.entry(), self._options.blank
        if entry is None or (blank is not None and entry.bitstream == blank.id):  # then no container has it
            return False
        return entry.state == "loaded" and entry.resource == self._work.resource

    # programming

    def begin(self, bitstream: Bitstream, work: Callable[[Bitstream, Progress], None] | None = None) -> ProgrammingJob:
        """Starts a job that programs the board unless it runs the bitstream; further callers join the job. Raises Busy
        if the board is being programmed with another bitstream, or for another resource. ``work``: instead of an
        attempt with the fallback.
        """
        if self._unknown:
            raise Busy(f"board {self.board.id!r} can't be programmed: {said(self._reader).fault or self._unknown}")
        work = work or partial(self._work.ensure, fallback=self._options.fallback)
        try:
            job = ProgrammingJob(bitstream, self._work.resource)
            return self._station.begin(job, partial(self._attempt, bitstream, partial(work, bitstream)))
        except Busy as error:
            raise Busy(f"board {self.board.id!r} can't be programmed: {error}") from error

    def finish(self, job: ProgrammingJob, end: float) -> None:
        """Waits for a job until ``end``, a time of time.monotonic(). Raises Busy if it goes on, or its DriverError."""
        if not job.ended.wait(max(0.0, end - time.monotonic())):
            raise Busy(f"board {self.board.id!r} {job}; it goes on, and the next attempt joins it")
        if job.error is not None:
            kind = Busy if isinstance(job.error, Busy) else DriverError
            raise kind(f"board {self.board.id!r} can't be programmed: {_text(job.error)}") from job.error

    def free(self, end: float) -> None:
        """Releases the board. Returns when no job is under way, or at ``end``. If configured it blanks the board, and
        returns when that is over, however late: no later call would take the last container's function off the board.
        """
        job, blank = self._station.job, self._options.blank
        if job is not None:
            job.ended.wait(max(0.0, end - time.monotonic()) if blank is None else None)
        if blank is None:
            return
        try:
            job = self.begin(blank, self._work.blank)
            job.ended.wait()
            self.finish(job, end)
        except DriverError as error:
            # other failures are logged already, or the board is another resource's by now
            if isinstance(error, Busy) or isinstance(error.__cause__, Refused):
                self._context.log.warning("a free board isn't blanked: %s", error)

    def close(self) -> None:
        """Stops retries. A job under way goes on, because hardware can't be interrupted."""
        self._station.leave(self)
        self._retries.close()

    def _attempt(self, bitstream: Bitstream, work: Callable[[Progress], None], tell: Progress) -> None:
        try:
            work(tell)
        except (Busy, Meanwhile):  # the board is in other hands, which isn't a failure of this resource
            self._passed()
            raise
        except BaseException as error:
            # A refused file of another image, a claim's function or `blank`, says nothing of the board.
            if not isinstance(error, Refused) or bitstream == self._options.chosen:
                self._failed(bitstream, error)
            raise
        if bitstream == self._options.chosen:
            self._refused = ""
        self._passed()

    def _passed(self) -> None:
        """Ends the retries, except the checks of a refused file, of which another image on the board says nothing."""
        if not self._refused:
            self._retries.settle(0)

    def _failed(self, bitstream: Bitstream, error: BaseException) -> None:
        """Records a failure, and schedules a retry if it may pass."""
        failures, why = self._retries.failures + 1, _text(error)
        if isinstance(error, Refused):
            self._refused = why
        elif bitstream == self._options.chosen:
            self._refused = ""
        self._context.log.warning("board %s can't be programmed (failure %d): %s", self.board.id, failures, why)
        # the fault is listed before a retry is planned, whose job may begin as soon as this one has ended
        self._note(partial(self._health_during, None))
        # a refused file may be repaired at any time, so it is always checked again
        self._retries.settle(failures, again=bool(self._refused) or may_pass(error))

    # trying again

    def _try_again(self) -> None:
        # after a refusal the board isn't at fault, so checking the file again is enough
        if not self._refused:
            with contextlib.suppress(Busy):  # another resource programs it
                self.begin(self._options.chosen, self._work.ensure_again)
            return
        try:
            self._work.check(self._options.chosen)
        except Refused as error:
            self._failed(self._options.chosen, error)
        else:
            self._refused = ""
            self._passed()
        self.station_changed()


def unknown(board: Board, options: FpgaOptions) -> str:
    """Why a present board can't be used yet: its lock, journal entry and hardware are named after its programming
    device, which only the next look finds. Empty if that is known.
    """
    known = not options.placed or board.life is not None
    return "" if known else "it has come since the last look for boards"


def _text(error: BaseException) -> str:
    return str(error) or repr(error)

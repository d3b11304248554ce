"""The kernel's fpga_manager: its state, and loading an image through it.

Theory. A manager has two attributes. ``state`` goes through AT_WORK during a load, and ends as ``operating`` or as an
error; ``status`` lists the driver's errors. Nothing announces a change, so both are polled. A child process executes
the load and may hang in it (``processes``), while this process reports each new state.

The attributes and the end of a load aren't in step: a driver may return before its hardware is done, and ``status`` may
be that of the load before. So a load's end is awaited in the state, and a fault counts only if it stays for ``_LATE``.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Sequence

from dpgateway import DeviceUnavailable, DriverError
from dpgateway.sysfs import Look, NoValue, Object, Roots
from dpgateway_fpga.boards import Board
from dpgateway_fpga.programmers.processes import Processes
from dpgateway_fpga.programmers.programmer import BoardState, Failed, Progress

OPERATING = "operating"
AT_WORK = frozenset({"firmware request", "parse header", "write init", "write", "write complete"})
"""The states of a load in progress."""
UNFOUND = "firmware request error"
_LOOK = 0.1
"""Seconds between two polls of the state."""
_LATE = 2.0
"""Seconds that state and status may lag behind the end of a load."""


def reading(look: Look, manager: Object) -> BoardState:
    """A manager's state. ``unknown`` isn't a fault, because it is the state before the first load; nor is ``UNFOUND``,
    because the kernel touched nothing then. Other errors stay until the next load (drivers/fpga/fpga-mgr.c).
    """
    state, status = look.value(manager, "state"), look.value(manager, "status")
    if isinstance(state, NoValue):
        return BoardState("absent" if state.absent else "unknown", fault=f"/sys/{manager.path}/state {state}")
    errors = str(status) if isinstance(status, NoValue) else ", ".join(status.split("\n"))
    # in linux-xlnx a read of status fails with ENOENT if the driver has none
    if isinstance(status, NoValue) and (status.absent or status.reason.endswith(os.strerror(errno.ENOENT))):
        errors = ""
    wrong = state.endswith(" error") and state != UNFOUND
    fault = f"state: {state}; status: {errors}" if errors else f"state: {state}" if wrong else None
    return BoardState(state, operating=state == OPERATING, fault=fault)


def unplaced(error: DriverError | OSError) -> BoardState:
    """The state of a board whose manager, or USB device, can't be found."""
    return BoardState("absent" if isinstance(error, DeviceUnavailable) else "unknown", fault=str(error))


class Watched:
    """Follows a manager during a load, and reports each change of its state."""

    def __init__(self, roots: Roots, manager: Object, progress: Progress) -> None:
        self._roots, self._manager, self._progress = roots, manager, progress
        self._last = ""

    def now(self) -> BoardState:
        return reading(Look(self._roots), self._manager)

    def tell(self) -> None:
        if (state := self.now().state) != self._last:
            self._last = state
            self._progress(state)

    def settle(self, seconds: float) -> None:
        """Waits for the end of a load, at most this long."""
        until = time.monotonic() + seconds
        late = time.monotonic() + min(_LATE, seconds)
        while (found := self.now()).state in AT_WORK or not (found.operating and found.fault is None):
            if time.monotonic() > (until if found.state in AT_WORK else late):
                break
            self.tell()
            time.sleep(_LOOK)

    def load(
        self, processes: Processes, board: Board, steps: Sequence[Sequence[object]], keep: Collection[int]
    ) -> None:
        """Executes the steps, of which the last one loads. Raises Failed with the manager's state."""
        try:
            processes.steps(board, steps, self.tell, keep)
        except Failed as error:
            # a status that explains an error state may come late
            until = time.monotonic() + _LATE
            while (found := self.now()).state.endswith(" error") and found.state != UNFOUND:
                if "; status: " in str(found.fault) or time.monotonic() > until:
                    break
                time.sleep(_LOOK)
            told = f"{error}; {found.fault or f'state: {found.state}'}"
            if found.state == UNFOUND:
                told += (
                    ": the kernel found no such file where it looks for firmware on the host, which is /lib/firmware, "
                    "and before it what /sys/module/firmware_class/parameters/path names; the option firmware has to "
                    "be where one of them is seen here"
                )
            again = error.again or found.state in {"absent", UNFOUND}
            raise Failed(told, again=again, touched=error.touched and found.state != UNFOUND) from error

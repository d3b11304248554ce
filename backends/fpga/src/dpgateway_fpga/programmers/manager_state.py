"""What the kernel's fpga_manager says of itself, whoever tells it to load something."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpgateway import DriverError
from dpgateway.sysfs import Look, NoValue, Object, Roots
from dpgateway_fpga import places
from dpgateway_fpga.boards import Board
from dpgateway_fpga.programmers.processes import Processes
from dpgateway_fpga.programmers.programmer import Failed, Progress, Reading

OPERATING = "operating"


def reading(look: Look, manager: Object) -> Reading:
    """``unknown`` is no fault: it is the state before the first load. An error stays until the next load
    (drivers/fpga/fpga-mgr.c).
    """
    state, status = look.value(manager, "state"), look.value(manager, "status")
    if isinstance(state, NoValue):
        return Reading("unknown", fault=f"/sys/{manager.path}/state {state}")
    # linux-xlnx fails a read of status with ENOENT where the driver has none.
    errors = "" if isinstance(status, NoValue) else ", ".join(status.split("\n"))
    fault = f"state: {state}; status: {errors}" if errors else f"state: {state}" if state.endswith(" error") else None
    return Reading(state, operating=state == OPERATING, fault=fault)


def read(roots: Roots, board: Board) -> Reading:
    """The reading of a board's manager; a board without one is absent."""
    look = Look(roots)
    try:
        return reading(look, places.manager(look, board))
    except (DriverError, OSError) as error:
        return Reading("absent", fault=str(error))


class Watched:
    """Tells the state of a manager while something is loaded, each time that it is another one."""

    def __init__(self, roots: Roots, manager: Object, progress: Progress) -> None:
        self._roots, self._manager, self._progress = roots, manager, progress
        self._last = ""

    def now(self) -> Reading:
        return reading(Look(self._roots), self._manager)

    def tell(self) -> None:
        if (state := self.now().state) != self._last:
            self._last = state
            self._progress(state)


def load(
    processes: Processes, board: Board, steps: Sequence[Sequence[object]], watched: Watched, keep: Collection[int]
) -> None:
    """Takes the steps. Raises Failed, which has the kernel's state."""
    try:
        processes.steps(board, steps, watched.tell, keep)
    except Failed as error:
        found = watched.now()
        raise Failed(f"{error}; {found.fault or f'state: {found.state}'}", again=error.again) from error

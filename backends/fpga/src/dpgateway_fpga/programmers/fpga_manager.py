"""Boards programmed by the kernel's fpga_manager, from a file whose name is written to its attribute ``firmware``.

Only vendors' kernels have this attribute (linux-xlnx, drivers/fpga/fpga-mgr.c). Writing it blocks for the whole load,
and takes no lock: two writers would be in the driver at once. A manager's other attributes are documented in
Documentation/ABI/testing/sysfs-class-fpga-manager.
"""

from __future__ import annotations

from dataclasses import replace

from dpgateway import DriverError
from dpgateway.sysfs import Look, Object
from dpgateway_fpga import places
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.boards import Board
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers.manager_state import Watched, reading, unplaced
from dpgateway_fpga.programmers.processes import Processes
from dpgateway_fpga.programmers.programmer import BoardState, Failed, Locks, Progress, Verification
from dpgateway_fpga.staging import staged

DIRECTORY = "dpgateway"
"""The gateway's own directory below the kernel's /lib/firmware."""


class FpgaManagerProgrammer:
    """Programs through a manager, whose image can't be read back."""

    verification = Verification.STATE

    def __init__(self, options: FpgaOptions) -> None:
        self._options, self._roots = options.fpga_manager, options.roots
        self._processes = Processes(options.patience)

    def expected(self, board: Board, image: Image) -> str:
        look = Look(self._roots)
        self._attributes(look, places.manager(look, board))
        return image.sha256

    def read(self, board: Board) -> BoardState:
        look = Look(self._roots)
        try:
            manager = places.manager(look, board)
        except (DriverError, OSError) as error:
            return unplaced(error)
        found = reading(look, manager)
        if fault := self._processes.left(board) or found.fault:
            return replace(found, fault=fault)
        try:
            self._attributes(look, manager)
        except (DriverError, OSError) as error:  # this manager can't load any image
            return replace(found, fault=str(error))
        return found

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        look = Look(self._roots)
        manager = places.manager(look, board)
        attributes = self._attributes(look, manager)
        here = look.roots.sysfs + "/" + manager.path
        # named after content and board, so that no other directory of the kernel's search path has a file of this name
        name = f"{image.sha256}-{board.id}.bin"
        with staged(self._options.firmware / DIRECTORY, name, image.content):
            steps = [("lock", here), *attributes, ("write", f"{here}/firmware", f"{DIRECTORY}/{name}")]
            watched = Watched(self._roots, manager, progress)
            watched.load(self._processes, board, steps, locks)
            watched.settle(self._processes.patience)

    def reset(self, board: Board) -> None:
        raise Failed("it can't be reset, because fpga_manager can only load: program it")

    def _attributes(self, look: Look, manager: Object) -> list[tuple[str, ...]]:
        names = look.entries(manager, "*")
        if "firmware" not in names:
            raise DriverError(
                f"/sys/{manager.path} has no attribute firmware: only vendors' kernels, such as linux-xlnx, load a "
                "file that is named there; use another programmer"
            )
        if "flags" in names:
            return [("flags", f"{look.roots.sysfs}/{manager.path}/flags", f"{self._options.flags:x}")]
        if self._options.flags:
            raise DriverError(
                f"/sys/{manager.path} has no attribute flags, expected one because the options have flags"
            )
        return []

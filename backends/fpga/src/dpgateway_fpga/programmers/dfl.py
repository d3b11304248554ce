"""Cards of Intel and Altera, through the kernel's DFL drivers: an ioctl of the management engine programs one port.

The card says which accelerator a port runs (``afu_id``), and for which interface it takes images (``compat_id``).
Sources: Documentation/fpga/dfl.rst, include/uapi/linux/fpga-dfl.h.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dpgateway import DriverError
from dpgateway.sysfs import Look, NoValue, Object
from dpgateway_fpga import gbs, places
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.boards import Board
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers.manager_state import AT_WORK, Watched, load, reading, unplaced
from dpgateway_fpga.programmers.processes import Processes
from dpgateway_fpga.programmers.programmer import BoardState, Failed, Locks, Progress, Verification

_COMPAT_ID = "dfl-fme-region.*/fpga_region/region*/compat_id"
_DEAD = "f" * 32
"""What a register of a card says that doesn't answer any more."""


class DflProgrammer:
    """What a port runs can be read back."""

    verification = Verification.IDENTITY

    def __init__(self, options: FpgaOptions) -> None:
        self._roots = options.roots
        self._processes = Processes(options.patience)

    def expected(self, board: Board, image: Image) -> str:
        file = gbs.parse(image.content)
        look = Look(self._roots)
        found = look.value(places.dfl(look, board).engine, _COMPAT_ID)
        if found != file.interface:
            card = str(found) if isinstance(found, NoValue) else f"is {found}"
            raise DriverError(f"the image is for the interface {file.interface}, found a card whose compat_id {card}")
        return file.accelerator

    def read(self, board: Board) -> BoardState:
        look = Look(self._roots)
        try:
            place = places.dfl(look, board)
            found = reading(look, place.manager)
        except (DriverError, OSError) as error:
            return unplaced(error)
        if left := self._processes.left(board):
            return replace(found, fault=left)
        afu = look.value(place.port, "afu_id")
        if isinstance(afu, NoValue) and found.state in AT_WORK:
            return found  # the port is disabled, and afu_id says EBUSY (drivers/fpga/dfl-afu-main.c)
        return _identified(found, afu)

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        self.expected(board, image)
        look = Look(self._roots)
        place = places.dfl(look, board)
        with _memory(gbs.parse(image.content).image) as memory:
            steps = [
                ("turn", f"{look.roots.sysfs}/{place.engine.path}"),
                ("unused", *_node(look, place.port)),
                ("reconfigure", *_node(look, place.engine), board.port, memory),
            ]
            keep = (memory, *locks)
            load(self._processes, board, steps, Watched(self._roots, place.manager, progress), keep)

    def reset(self, board: Board) -> None:
        """Resets what the port runs, which stays the same."""
        look = Look(self._roots)
        self._processes.steps(board, [("reset", *_node(look, places.dfl(look, board).port))], lambda: None)


def _identified(found: BoardState, afu: str | NoValue) -> BoardState:
    """After a reconfiguration that failed, the kernel leaves the port disabled for ever: its error path doesn't enable
    the bridge (drivers/fpga/fpga-region.c, fpga_region_program_fpga), and no later success does. A port that isn't
    disabled runs what it says: what the card's one manager says is of the port that was programmed last.
    """
    if isinstance(afu, NoValue):
        why = (
            f"afu_id {afu}: its port is disabled, as after a failed reconfiguration; unload and load the card's driver"
        )
        return replace(found, fault=f"{found.fault}; {why}" if found.fault else why)
    if afu == _DEAD:
        return replace(found, fault=found.fault or f"afu_id is {afu}: the card doesn't answer")
    return replace(found, identity=afu, operating=True, fault=None)


def _node(look: Look, thing: Object) -> tuple[str, str]:
    """The device node, and its number, which the node is held against."""
    name, number = look.env(thing, "DEVNAME"), look.value(thing, "dev")
    if isinstance(name, NoValue) or isinstance(number, NoValue):
        raise Failed(f"/sys/{thing.path} has no device node: uevent has DEVNAME {name}, dev {number}")
    return f"{look.roots.dev}/{name}", number


@contextmanager
def _memory(content: memoryview) -> Iterator[int]:
    """A descriptor of sealed memory with the image."""
    descriptor = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield descriptor
    finally:
        os.close(descriptor)

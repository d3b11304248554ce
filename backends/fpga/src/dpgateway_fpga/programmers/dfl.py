"""Cards of Intel and Altera, through the kernel's DFL drivers: an ioctl of the management engine programs one port.

A port's ``afu_id`` identifies its accelerator, the card's ``compat_id`` the interface that images must be for.
Sources: Documentation/fpga/dfl.rst, include/uapi/linux/fpga-dfl.h.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from dpgateway import DriverError
from dpgateway.sysfs import Look, NoValue, Object
from dpgateway_fpga import gbs, places
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.boards import Board
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers.manager_state import AT_WORK, Watched, reading, unplaced
from dpgateway_fpga.programmers.processes import Processes
from dpgateway_fpga.programmers.programmer import BoardState, Failed, Locks, Progress, Verification

_COMPAT_ID = "dfl-fme-region.*/fpga_region/region*/compat_id"
_DEAD = "f" * 32
"""The value of all registers of a card that no longer responds."""


class DflProgrammer:
    """Programs ports, whose accelerator can be read back."""

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
            return found  # the port is disabled for now, so afu_id gives EBUSY (drivers/fpga/dfl-afu-main.c)

        # After a failed reconfiguration the kernel leaves the port disabled for ever: the error path doesn't enable the
        # bridge (drivers/fpga/fpga-region.c, fpga_region_program_fpga), and no later success does.
        if isinstance(afu, NoValue):
            why = f"afu_id {afu}: its port is disabled, as after a failed reconfiguration"
            told = [found.fault] if found.fault else []
            return replace(found, fault="; ".join([*told, why, "unload and load the card's driver"]))
        if afu == _DEAD:
            return replace(found, fault=found.fault or f"afu_id is {afu}: the card doesn't answer")

        # The card has one manager, whose state is that of the port programmed last: an enabled port's afu_id overrides
        # the manager's fault.
        return replace(found, identity=afu, operating=True, fault=None)

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        self.expected(board, image)
        look = Look(self._roots)
        place = places.dfl(look, board)
        with _sealed(gbs.parse(image.content).image) as memory:
            # the card's lock comes first: a port that was unused before the wait may be in use after it
            steps = [
                ("turn", f"{look.roots.sysfs}/{place.engine.path}"),
                ("unused", *_node(look, place.port)),
                ("reconfigure", *_node(look, place.engine), board.port, memory),
            ]
            keep = (memory, *locks)
            Watched(self._roots, place.manager, progress).load(self._processes, board, steps, keep)

    def reset(self, board: Board) -> None:
        """Resets the port's accelerator, which stays loaded."""
        look = Look(self._roots)
        self._processes.steps(board, [("reset", *_node(look, places.dfl(look, board).port))], lambda: None)


@contextmanager
def _sealed(content: memoryview) -> Iterator[int]:
    """The descriptor of memory that no process can change any more. Raises Failed."""
    with ExitStack() as closed:
        try:
            memory = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            closed.callback(os.close, memory)
            with os.fdopen(memory, "wb", closefd=False) as file:
                file.write(content)
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
        except OSError as error:
            raise Failed(f"there is no memory for the image: {error}", again=True, touched=False) from error
        yield memory


def _node(look: Look, thing: Object) -> tuple[str, str]:
    """The device node, and the number that it must have."""
    name, number = look.env(thing, "DEVNAME"), look.value(thing, "dev")
    if isinstance(name, NoValue) or isinstance(number, NoValue):
        raise Failed(f"/sys/{thing.path} has no device node: uevent has DEVNAME {name}, dev {number}")
    return f"{look.roots.dev}/{name}", number

"""Boards programmed by a device-tree overlay: the kernel loads the image that the overlay names.

Only kernels with a patch carried by many vendors have overlays in configfs (linux-xlnx, drivers/of/configfs.c): a
directory is an overlay, and writing a file's name to its ``path`` applies it, which blocks until the image is loaded.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dpgateway import DriverError
from dpgateway.sysfs import Look
from dpgateway_fpga import dtbo, places
from dpgateway_fpga.bitstream import Image, read_image
from dpgateway_fpga.boards import Board
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers.fpga_manager import DIRECTORY
from dpgateway_fpga.programmers.manager_state import Watched, reading, unplaced
from dpgateway_fpga.programmers.processes import Processes
from dpgateway_fpga.programmers.programmer import BoardState, Failed, Locks, Progress, Verification
from dpgateway_fpga.staging import staged
from dpgateway_fpga.trusted import read_file

LONGEST = 4096
"""Limit of bytes of an attribute of configfs (fs/configfs/file.c, SIMPLE_ATTR_SIZE)."""


class OverlayProgrammer:
    """Applies one overlay for each board, named after the board. A manager's image can't be read back."""

    verification = Verification.STATE

    def __init__(self, options: FpgaOptions) -> None:
        self._options, self._roots = options.overlay, options.roots
        self._processes = Processes(options.patience)

    def expected(self, board: Board, image: Image) -> str:
        dtbo.naming(self._file().content, f"{DIRECTORY}/{_image_name(board, image)}")
        if why := self._lacking():
            raise DriverError(why)
        return image.sha256

    def read(self, board: Board) -> BoardState:
        look, here = Look(self._roots), self._place(board.key)
        try:
            found = reading(look, places.manager(look, board))
        except (DriverError, OSError) as error:
            found = unplaced(error)
        try:
            status, path = (read_file(here / name, LONGEST).strip() for name in ("status", "path"))
        except (DriverError, OSError):
            status = path = b""

        # an applied overlay is ours if it was made of the file as it is now; of a refused file nobody knows
        ours = found.operating and status == b"applied"
        if ours:
            try:
                ours = path.startswith(f"{DIRECTORY}/{self._file().sha256}-".encode())
            except DriverError:
                ours = bool(path)
        if found.operating and not ours:
            found = replace(found, state=f"{found.state} without its overlay", operating=False)
        return replace(found, fault=self._processes.left(board) or found.fault or self._lacking())

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        """Replaces the board's overlay: the old one first, because a region takes only one (of-fpga-region.c)."""
        self.expected(board, image)
        look = Look(self._roots)
        manager = places.manager(look, board)
        here, directory, file = self._place(board.key), self._options.firmware / DIRECTORY, self._file()
        overlay = dtbo.naming(file.content, f"{DIRECTORY}/{_image_name(board, image)}")
        # the file's digest comes first: ``read`` tells by it whether the overlay is still the configured one
        name = f"{file.sha256}-{image.sha256}-{board.id}.dtbo"
        with staged(directory, _image_name(board, image), image.content), staged(directory, name, overlay):
            self.reset(board)
            steps = [("mkdir", str(here)), ("write", f"{here}/path", f"{DIRECTORY}/{name}")]
            watched = Watched(self._roots, manager, progress)
            try:
                watched.load(self._processes, board, steps, locks)
                watched.settle(self._processes.patience)
            except Failed as error:
                with suppress(DriverError):  # the first failure is reported; a process that hangs still has the overlay
                    self.reset(board)
                # a region takes one overlay, so another one may be the reason
                names = {self._place(key).name for key in board.keys}
                others = sorted(one.name for one in self._options.configfs.glob("*") if one.name not in names)
                why = f"{error}; the kernel has {', '.join(others)} already" if others else str(error)
                raise Failed(why, again=error.again, touched=error.touched) from error

    def reset(self, board: Board) -> None:
        """Removes the overlay and the devices that it created. The loaded logic stays."""
        overlays = [self._place(key) for key in board.keys]
        if steps := [("rmdir", str(here)) for here in overlays if here.exists()]:
            self._processes.steps(board, steps, lambda: None)

    def _file(self) -> Image:
        if self._options.file is None:
            raise DriverError("expected overlay.file among the options")
        return read_image(self._options.file)

    def _lacking(self) -> str | None:
        """Why no overlay can be applied on this kernel; None if overlays work."""
        if os.path.isdir(self._options.configfs):  # noqa: PTH112  a Path's raises where it mayn't look
            return None
        return (
            f"{self._options.configfs} isn't there: only vendors' kernels, such as linux-xlnx, have overlays in "
            "configfs, which has to be mounted; use another programmer"
        )

    def _place(self, key: str) -> Path:
        return self._options.configfs / f"dpgateway-{key}"


def _image_name(board: Board, image: Image) -> str:
    return f"{image.sha256}-{board.id}.bin"

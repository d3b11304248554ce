"""Boards programmed by a tool: xrt-smi, fpgaconf, or any program that exits with 0 on success."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from dpgateway import DriverError
from dpgateway.sysfs import Look, expression
from dpgateway_fpga import gbs, places
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.boards import Board
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers.manager_state import unplaced
from dpgateway_fpga.programmers.processes import Processes
from dpgateway_fpga.programmers.programmer import BoardState, Failed, Locks, Progress, Verification
from dpgateway_fpga.staging import Unwritten, staged

_PATIENCE = timedelta(seconds=5)
"""Timeout of a tool that only reads: the gateway waits 10 s for a list of boards."""
_NO_IMAGE = Image(b"", "")
_UUID = slice(416, 432)
_WORD = re.compile(r"[A-Za-z0-9][\w.:/+-]*", re.ASCII)
"""No white space, and no leading hyphen, which would make it an option."""
_PCI = re.compile(r"(?P<segment>[0-9a-f]{4,}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])")


class CommandProgrammer:
    """Verifies a board only if a second tool can read its image back."""

    def __init__(self, options: FpgaOptions) -> None:
        self._options, self._tool = options, options.command.tool
        self._programming = Processes(options.patience, options.command.env)
        self._reading = Processes(_PATIENCE, options.command.env)

    @property
    def verification(self) -> Verification:
        return Verification.IDENTITY if self._tool.read else Verification.NONE

    def expected(self, board: Board, image: Image) -> str:
        filled = self._filled(board, image)
        for part in self._tool.argv:  # an image that the tool can't be given is refused before the board is touched
            filled(part)
        return filled(self._tool.expect) if self._tool.expect else image.sha256

    def read(self, board: Board) -> BoardState:
        if self._options.by_serial:
            try:
                places.usb_life(Look(self._options.roots), board)
            except (DriverError, OSError) as error:
                return unplaced(error)
        left = self._programming.left(board)
        if left or not self._tool.read:
            return BoardState("unknown", fault=left)
        try:
            argv = [self._filled(board)(part) for part in self._tool.read]
            ended = self._reading.run(board, argv, lambda _: None)
        except (DriverError, OSError) as error:
            return BoardState("unknown", fault=str(error))
        if ended.code:
            return BoardState("unknown", fault=f"{argv[0]} ended with code {ended.code}: {ended.output}")
        found = (expression(self._tool.pattern).first_group(ended.output) or "").strip()
        return BoardState("running", found, operating=True) if found else BoardState("empty")

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        with ExitStack() as files:
            file = None
            if any("{file}" in part for part in self._tool.argv):
                name = f"{image.sha256}-{board.id}{image.suffix}"
                directory = self._options.command.files
                try:
                    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                except OSError as error:
                    raise Unwritten(f"the image can't be put into {directory}: {error}") from error
                file = files.enter_context(staged(directory, name, image.content))
            filled = self._filled(board, image, file)
            argv = [filled(part) for part in self._tool.argv]
            ended = self._programming.run(board, argv, _changes(progress), locks)
        if ended.code:
            raise Failed(f"{argv[0]} ended with code {ended.code}: {ended.output or 'it said nothing'}")

    def reset(self, board: Board) -> None:
        raise Failed(f"it can't be reset, because {self._tool.argv[0]} can only program it")

    def _filled(self, board: Board, image: Image = _NO_IMAGE, file: Path | None = None) -> Callable[[str], str]:
        """A function that fills a text's placeholders. It raises DriverError, OSError."""
        roots = self._options.roots
        values = _Lazy(
            file=lambda: str(file),
            sha256=lambda: image.sha256,
            text=lambda: _word(image.content),
            uuid=lambda: _uuid(image.content),
            accelerator=lambda: gbs.parse(image.content).accelerator,
            board=lambda: board.id,
            address=lambda: board.place,
            port=lambda: str(board.port),
            sysfs=lambda: roots.sysfs,
            dfl_port=lambda: f"{roots.sysfs}/{places.dfl(Look(roots), board).port.path}",
            **{name: partial(_of_pci, board.place, name) for name in _PCI.groupindex},
        )
        return lambda text: text.format_map(values)


class _Lazy(dict[str, Any]):
    """Values computed on access, because most placeholders aren't used and some raise errors."""

    def __getitem__(self, name: str) -> object:
        return super().__getitem__(name)()


def _of_pci(address: str, name: str) -> str:
    found = _PCI.fullmatch(address)
    if found is None:
        raise DriverError(f"expected an address such as 0000:3b:00.0, found {address!r}")
    return found[name]


def _word(content: bytes) -> str:
    text = content.decode("ascii", "replace").strip()
    if not _WORD.fullmatch(text):
        raise DriverError(f"expected one word as the image's text, found {text[:80]!r}")
    return text


def _uuid(content: bytes) -> str:
    """The uuid in an xclbin file. Source: XRT, src/runtime_src/core/include/xrt/detail/xclbin.h, struct axlf."""
    if not content.startswith(b"xclbin2\0") or len(content) < _UUID.stop:
        raise DriverError("expected an xclbin file, which begins with xclbin2")
    return str(UUID(bytes=content[_UUID]))


def _changes(progress: Progress) -> Progress:
    """Passes on each non-empty line that differs from the last one."""
    last = [""]

    def tell(line: str) -> None:
        if line and line != last[0]:
            last[0] = line
            progress(line)

    return tell

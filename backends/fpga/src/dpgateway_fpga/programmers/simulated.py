"""Boards that are files, for demos and tests."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import ClassVar

from dpgateway import DriverError
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.boards import Board
from dpgateway_fpga.programmers.programmer import BoardState, Failed, Locks, Progress, Verification
from dpgateway_fpga.trusted import read_file, trusted_directory, write_file
from dpgateway_fpga.ways import Simulated

_LARGEST = 4096


class SimulatedProgrammer:
    """Its boards are files, which keep their image for the next gateway, like a board that stayed powered."""

    verification: ClassVar[Verification] = Verification.IDENTITY

    def __init__(self, options: Simulated) -> None:
        self._options = options
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def expected(self, board: Board, image: Image) -> str:
        return image.sha256

    def read(self, board: Board) -> BoardState:
        try:
            with trusted_directory(self._options.state_dir) as directory:
                found = json.loads(read_file(f"{board.key}.json", _LARGEST, directory))
            state, sha256 = str(found["state"]), str(found["sha256"])
        except (DriverError, OSError, ValueError, LookupError, TypeError, RecursionError):
            return BoardState("unknown")
        return BoardState(state, sha256, operating=True) if state == "loaded" else BoardState(state)

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        self._write(board, "programming", image)  # if we die now, the board's state is unknown to the next gateway
        progress("programming")
        time.sleep(self._options.duration.total_seconds())
        with self._lock:
            self._attempts[board.key] += 1
            attempt = self._attempts[board.key]
        if attempt <= self._options.fail_first:
            raise Failed(f"simulated failure {attempt} of {self._options.fail_first}", again=True)
        self._write(board, "loaded", image)

    def reset(self, board: Board) -> None:
        """Removes the image."""
        with suppress(FileNotFoundError), trusted_directory(self._options.state_dir) as directory:
            os.unlink(f"{board.key}.json", dir_fd=directory)

    def _write(self, board: Board, state: str, image: Image) -> None:
        """Writes a new file in a trusted directory, where no link can lead to another file."""
        self._options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = json.dumps({"state": state, "sha256": image.sha256}).encode()
        with trusted_directory(self._options.state_dir) as directory:
            write_file(f"{board.key}.json", content, 0o600, directory)

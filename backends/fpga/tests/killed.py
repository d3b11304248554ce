"""A process that makes sure that a board runs a bitstream, and is killed at a step: ``killed.py FOLDER``.

For each step, one after the other, in a process of its own: the attempt is killed just before that step, then a second
attempt is made, and what both did is told, a line of JSON each. A step is each time that the board is asked or
programmed, and that one of its files is opened, renamed, locked or removed, as the interpreter audits it.
"""

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from dpgateway_fpga import Bitstream, Board, FpgaDriver, FpgaOptions
from dpgateway_fpga.programmers import BoardState, Verification

from dpgateway import Context

FILES = "b.json", ".b.json.new", "b.lock", "aes.bin"
CHANGES = "os.mkdir", "os.remove", "os.rename", "fcntl.flock"


def is_step(event, arguments):
    """https://docs.python.org/3/library/audit_events.html."""
    opens = event == "open" and Path(str(arguments[0])).name in FILES
    return opens or event in CHANGES or event.startswith("board.")


class Hardware:
    """A board that keeps what it was told, as far as it was told, when its programmer is killed."""

    verification = Verification.IDENTITY

    def __init__(self, folder: Path) -> None:
        self._file, self._log = folder / "board", folder / "programmed"

    def expected(self, board, image):
        return image.sha256

    def read(self, board):
        sys.audit("board.read")
        found = self._file.read_text() if self._file.exists() else ""
        return BoardState(found, found if found and not found.startswith("half") else None)

    def reset(self, board):
        raise AssertionError("nobody asked for that")

    def program(self, board, image, progress, locks=()):
        sys.audit("board.program")
        self._file.write_text("half")
        with self._log.open("a") as log:
            log.write("x")
        sys.audit("board.write")
        self._file.write_text(image.sha256)
        sys.audit("board.written")


def attempt(folder: Path, kill_at: int) -> int:
    """In a process of its own. Returns how many steps there were, if it lived."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        counted = 0

        def step(event, arguments):
            nonlocal counted
            if is_step(event, arguments):
                counted += 1
                if counted == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        context = Context("example.com/aes", "node", logging.LoggerAdapter(logging.getLogger()), lambda: None)
        options = FpgaOptions(
            boards=(Board("b"),), bitstream=Bitstream(folder / "aes.bin", "aes"), state_dir=folder / "journal"
        )
        driver = FpgaDriver(options, context, Hardware(folder))
        sys.addaudithook(step)
        driver.prepare(driver.devices())
        os.write(write, str(counted).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        steps = told.read()
    _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status) == 0) == bool(steps), "it failed by itself"
    return int(steps or 0)


def told(folder: Path) -> dict[str, Any]:
    journal = folder / "journal" / "b.json"
    return {
        "board": (folder / "board").read_text() if (folder / "board").exists() else "",
        "programmed": len((folder / "programmed").read_text()) if (folder / "programmed").exists() else 0,
        "journal": json.loads(journal.read_text())["state"] if journal.exists() else "",
        "left": sorted(path.name for path in journal.parent.glob("*")),
    }


def main(folder: Path) -> None:
    step = 0
    while True:
        step += 1
        here = folder / str(step)
        here.mkdir()
        (here / "aes.bin").write_text("aes")
        (here / "aes.bin").chmod(0o600)
        lived = attempt(here, step)
        before = told(here)
        attempt(here, 0)
        line = {"step": step, "lived": bool(lived), "before": before, "after": told(here)}
        sys.stdout.write(json.dumps(line) + "\n")
        if lived:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))

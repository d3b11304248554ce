"""Child processes for operations that may hang: started for one board each, waited for, and abandoned if they hang.

A process that waits for hardware within the kernel can't be killed, and its operation can't be undone. So it is waited
for until a timeout, and then keeps its board out of use until it ends.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from dpgateway import await_program
from dpgateway_fpga.boards import Board
from dpgateway_fpga.programmers.programmer import Failed, Progress

CHILD = Path(__file__).with_name("child.py")
PASSING = frozenset({errno.EBUSY, errno.EAGAIN, errno.EINTR})
"""Errors that may pass: another process programs the board, or has its device open."""
_LOOK = 0.1
"""Seconds between two polls of the progress; the kernel announces no change (drivers/fpga/fpga-mgr.c)."""
_LONGEST = 4096
"""Bytes at the end of a process's output that are reported."""
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """A process's exit code, and the end of its output."""

    code: int
    output: str


class Processes:
    """The processes of one programmer. Calls for different boards may run concurrently."""

    def __init__(self, patience: timedelta, env: Mapping[str, str] = _ENVIRONMENT) -> None:
        """``env`` extends or overrides PATH and LC_ALL, the whole environment of the processes."""
        self.patience, self._env = patience.total_seconds(), {**_ENVIRONMENT, **env}
        self._left: dict[str, list[tuple[subprocess.Popen[bytes], float]]] = {}
        """The abandoned processes, and when each began, keyed by the board's key. Several only if they ran at the same
        time, a list's and a job's reads, because none begins while one is left.
        """
        self._polling = threading.Lock()
        """Held while ``_left`` is read or changed: lists, prepares and jobs ask for one board at the same time."""

    def left(self, board: Board) -> str | None:
        """Why a board is out of use: an abandoned process still works on it. None if none does."""
        # Popen.poll of two threads at once tells one of them that an ended process runs (subprocess.py, _internal_poll)
        with self._polling:
            left = [one for one in self._left.pop(board.key, ()) if one[0].poll() is None]
            if not left:
                return None
            self._left[board.key] = left
            process, since = left[0]
        return (
            f"process {process.pid} hangs, which began to program the board {time.monotonic() - since:.0f} s ago; the "
            "board can be used again when that process has ended"
        )

    def steps(
        self, board: Board, steps: Sequence[Sequence[object]], progress: Callable[[], None], keep: Collection[int] = ()
    ) -> None:
        """Executes steps of ``child`` for a board. ``keep``: descriptors to inherit. Raises Failed."""
        argv = [sys.executable, "-I", "-S", str(CHILD), json.dumps(steps)]
        ended = self.run(board, argv, lambda _: progress(), keep)
        if not ended.code:
            return
        try:
            said = json.loads(ended.output.rpartition("\n")[2])
            number, touched = said["errno"], said["touched"]
            why = f"{said['step']} {said['path']}: {said['why']} ({errno.errorcode.get(number, number)})"
        except (ValueError, LookupError, TypeError):
            text = f"the process that programs ended with code {ended.code}: {ended.output or 'it said nothing'}"
            raise Failed(text) from None
        raise Failed(why, again=number in PASSING or not touched, touched=touched)

    def run(self, board: Board, argv: Sequence[str], progress: Progress, keep: Collection[int] = ()) -> ExitStatus:
        """Runs a program for a board; ``progress`` gets its last line of output. Raises Failed, OSError."""
        if why := self.left(board):
            raise Failed(why, again=True)
        with ExitStack() as closed:
            since = time.monotonic()
            await_program(argv[0], self._env["PATH"])
            try:
                # not a pipe: an abandoned process would block on a full one, and die of a closed one
                output = os.memfd_create("output", os.MFD_CLOEXEC)
                closed.callback(os.close, output)
                # in a session of its own, so that no signal for this process's group reaches it
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", env=self._env,
                    pass_fds=tuple(keep), start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError) as error:  # an argument with a zero byte, say
                raise Failed(f"{argv[0]} can't be started: {error}", again=True, touched=False) from error

            # not by a pidfd: where no descriptor is left for one, nobody would know of the process
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return ExitStatus(process.wait(_LOOK), _tail(output))
                if time.monotonic() > since + self.patience:
                    with self._polling:
                        self._left.setdefault(board.key, []).append((process, since))
                    raise Failed(
                        f"{argv[0]} (process {process.pid}) hasn't ended after {self.patience:g} s; it is left behind, "
                        "because it can't be stopped without harm, and the board can be used again when it has ended",
                        again=True,
                    )
                progress(_tail(output).rpartition("\n")[2])


def _tail(output: int) -> str:
    size = os.fstat(output).st_size
    return os.pread(output, _LONGEST, max(0, size - _LONGEST)).decode(errors="replace").strip()

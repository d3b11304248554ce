"""Commands a process to flip a device's health, and gets the time at which it did.

Commands are indexes, one per line, in a named pipe. Each is answered in another pipe with the time of the flip, in
nanoseconds of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_DUE = 30.0
"""Seconds until an answer, at most, before the run fails."""


def follow(commands: Path, stamps: Path, flip: Callable[[int], int]) -> None:
    """Reads and answers commands on a thread of its own. ``flip`` returns the time of the flip."""

    def obey() -> None:
        with commands.open() as lines, stamps.open("w") as answers:
            for line in lines:
                print(flip(int(line)), file=answers, flush=True)

    threading.Thread(target=obey, name="flipping", daemon=True).start()


class Commander:
    """The other end of both pipes."""

    def __init__(self, folder: Path) -> None:
        self.commands, self.stamps = folder / "commands", folder / "stamps"
        for path in (self.commands, self.stamps):
            os.mkfifo(path)

    def __enter__(self) -> Self:
        # O_RDWR doesn't wait for the other end, which may have failed to start: fifo(7).
        self._to, self._from = os.open(self.commands, os.O_RDWR), os.open(self.stamps, os.O_RDWR)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._to)
        os.close(self._from)

    def flip(self, index: int) -> None:
        os.write(self._to, b"%d\n" % index)

    def stamp(self) -> int:
        """The time of the last flip, in nanoseconds."""
        ready, _, _ = select.select([self._from], [], [], _DUE)
        if not ready:
            raise TimeoutError(f"no answer to a flip within {_DUE:g} s")
        return int(os.read(self._from, 100))

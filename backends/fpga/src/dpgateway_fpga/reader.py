"""Reads what one board says, on a thread of its own: a read that hangs in the kernel holds up no other board."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dpgateway_fpga.programmers import Reading

PATIENCE = 1.0
"""Seconds that a board has to answer. Reads of its registers take microseconds."""


class _Read:
    """One read, which ends when the kernel lets it."""

    def __init__(self) -> None:
        self.began, self.done = time.monotonic(), threading.Event()
        self.reading: Reading | None = None
        self.error: BaseException | None = None
        self.late = False
        """Somebody waited for it in vain."""


class Reader:
    """Used from any thread. Never has more than one read under way."""

    def __init__(
        self, read: Callable[[], Reading], late: Callable[[], None] = lambda: None, patience: float = PATIENCE
    ) -> None:
        """``late`` is called when a read has ended for which somebody waited in vain; ``patience`` is in seconds."""
        self._read, self._late, self._patience = read, late, patience
        self._lock = threading.Lock()
        self._now: _Read | None = None

    def read(self) -> Reading:
        """What the board says now. Waits for each read no longer than the patience; then that is the board's fault."""
        while True:
            try:
                one, ours = self._join()
            except RuntimeError as error:  # the system has no thread left
                return Reading("unknown", fault=f"its state can't be read: {error}")
            if not self._in_time(one):
                seconds = time.monotonic() - one.began
                return Reading("unknown", fault=f"a read of its state hangs, which began {seconds:.0f} s ago")
            if one.error is not None:
                raise one.error
            if ours and one.reading is not None:  # one that began before us may be older than what we were asked for
                return one.reading

    def _join(self) -> tuple[_Read, bool]:
        with self._lock:
            if self._now is not None:
                return self._now, False
            one = _Read()
            threading.Thread(target=self._run, args=(one,), name="read a board's state", daemon=True).start()
            self._now = one
            return one, True

    def _in_time(self, one: _Read) -> bool:
        if one.done.wait(max(0.0, one.began + self._patience - time.monotonic())):
            return True
        with self._lock:
            one.late = not one.done.is_set()
        return not one.late

    def _run(self, one: _Read) -> None:
        try:
            one.reading = self._read()
        except BaseException as error:  # who waits raises it
            one.error = error
        with self._lock:
            self._now = None
            one.done.set()
        if one.late:
            self._late()

"""Reads that may hang in the kernel, each on a thread of its own, so that one doesn't hold up another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from dpgateway import DriverError

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds that a read may take. Registers of a board, and files of /sys, take microseconds."""


class Hung(DriverError):
    """There is no answer in time."""


class _Read(Generic[T]):
    """One read, which ends when the kernel lets it."""

    def __init__(self) -> None:
        self.began, self.done = time.monotonic(), threading.Event()
        self.answers: list[T] = []
        """None or one."""
        self.error: BaseException | None = None
        self.late = False
        """A caller's wait for it timed out."""


class PatientReader(Generic[T]):
    """Used from any thread. Never has more than one read under way."""

    def __init__(
        self, what: str, read: Callable[[], T], late: Callable[[], None] = lambda: None, patience: float = PATIENCE
    ) -> None:
        """``what`` is read, for people. ``late`` is called when a read has ended whose caller had timed out;
        ``patience`` is in seconds.
        """
        self._what, self._read, self._late, self._patience = what, read, late, patience
        self._lock = threading.Lock()
        self._now: _Read[T] | None = None

    def read(self) -> T:
        """The answer as it is now. Raises Hung if a read takes longer than the patience, and the read's own error."""
        ours = False
        while not ours:  # a read that began before us may be older than what we were asked for
            with self._lock:
                if ours := self._now is None:
                    one = _Read[T]()
                    thread = threading.Thread(target=self._run, args=(one,), name=f"read {self._what}", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:
                        why = f"{self._what} can't be read, because there is no thread for it: {error}"
                        raise Hung(why) from error
                    self._now = one
                else:
                    one = self._now
            if not one.done.wait(max(0.0, one.began + self._patience - time.monotonic())):
                with self._lock:
                    one.late = not one.done.is_set()
                if one.late:
                    raise Hung(f"a read of {self._what} hangs, which began {time.monotonic() - one.began:.0f} s ago")
            if one.error is not None:
                raise one.error
        return one.answers[0]

    def _run(self, one: _Read[T]) -> None:
        try:
            one.answers.append(self._read())
        except BaseException as error:  # raised by the waiting caller
            one.error = error
        with self._lock:
            self._now = None
            one.done.set()
        if one.late:
            self._late()

"""Reads what may hang in the kernel, on a thread of its own: who asks for one thing doesn't wait for another."""

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
        """Somebody waited for it in vain."""


class PatientReader(Generic[T]):
    """Used from any thread. Never has more than one read under way."""

    def __init__(
        self, what: str, read: Callable[[], T], late: Callable[[], None] = lambda: None, patience: float = PATIENCE
    ) -> None:
        """``what`` is read, for people. ``late`` is called when a read has ended for which somebody waited in vain;
        ``patience`` is in seconds.
        """
        self._what, self._read, self._late, self._patience = what, read, late, patience
        self._lock = threading.Lock()
        self._now: _Read[T] | None = None

    def read(self) -> T:
        """The answer as it is now. Raises Hung if a read takes longer than the patience, and whatever a read raises."""
        while True:
            try:
                one, ours = self._join()
            except RuntimeError as error:
                raise Hung(f"{self._what} can't be read, because there is no thread for it: {error}") from error
            if not self._in_time(one):
                seconds = time.monotonic() - one.began
                raise Hung(f"a read of {self._what} hangs, which began {seconds:.0f} s ago")
            if one.error is not None:
                raise one.error
            if ours:  # one that began before us may be older than what we were asked for
                return one.answers[0]

    def _join(self) -> tuple[_Read[T], bool]:
        with self._lock:
            if self._now is not None:
                return self._now, False
            one = _Read[T]()
            threading.Thread(target=self._run, args=(one,), name=f"read {self._what}", daemon=True).start()
            self._now = one
            return one, True

    def _in_time(self, one: _Read[T]) -> bool:
        if one.done.wait(max(0.0, one.began + self._patience - time.monotonic())):
            return True
        with self._lock:
            one.late = not one.done.is_set()
        return not one.late

    def _run(self, one: _Read[T]) -> None:
        try:
            one.answers.append(self._read())
        except BaseException as error:  # who waits raises it
            one.error = error
        with self._lock:
            self._now = None
            one.done.set()
        if one.late:
            self._late()

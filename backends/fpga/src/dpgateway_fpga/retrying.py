"""Retries with exponential backoff: the pause doubles from ``retry_first`` up to ``retry_limit``, with jitter."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from dpgateway_fpga.options import FpgaOptions


class BoardRetries:
    """The retries of one board. At most one attempt is scheduled. Thread-safe."""

    def __init__(self, options: FpgaOptions, attempt: Callable[[], None], complain: Callable[[str], None]) -> None:
        """``attempt`` runs on its own thread; ``complain`` gets the reason when none can be scheduled."""
        self._options, self._attempt, self._complain = options, attempt, complain
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._attempting = False
        """Whether a scheduled attempt is under way, which may hang."""
        self._closed = False
        self.failures = 0
        """The number of failures since the last success."""

    def settle(self, failures: int, *, again: bool = False) -> None:
        """Records an attempt's outcome, and cancels a scheduled one; ``again`` schedules the next."""
        with self._lock:
            self.failures = failures
            self._cancel()
            if again:
                self._schedule()

    def plan(self) -> None:
        """Schedules an attempt unless one is scheduled or under way."""
        with self._lock:
            if self._timer is None and not self._attempting:
                self._schedule()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._cancel()

    def _due(self) -> None:
        with self._lock:
            if self._timer is not threading.current_thread():  # cancelled when it had fired already
                return
            self._timer, self._attempting = None, True
        try:
            self._attempt()
        finally:
            with self._lock:
                self._attempting = False

    def _schedule(self) -> None:
        if self._closed:
            return
        timer = threading.Timer(pause(max(1, self.failures), self._options), self._due)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError as error:  # no thread can be started; the next list plans it again
            self._complain(str(error))
        else:
            self._timer = timer

    def _cancel(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


def pause(failures: int, options: FpgaOptions) -> float:
    """Seconds to wait after this many failures. The jitter separates boards that failed at the same time."""
    first, limit = options.retry_first.total_seconds(), options.retry_limit.total_seconds()
    return min(limit, first * 2.0 ** min(failures - 1, 30)) * random.uniform(0.8, 1.0)  # noqa: S311  no secret

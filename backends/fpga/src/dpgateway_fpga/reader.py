"""Reads that may hang in the kernel, with a timeout, each on its own thread so that one doesn't hold up another.

Theory. A reader has at most one read under way, ``_now``, however many callers wait, so a hung board costs one thread.
A caller never takes the answer of a read that began before the call, which may be outdated: it waits for that one to
end, and then starts its own. When a read ends whose caller had timed out, ``late`` is called, so that the owner
asks again. ``_lock`` guards ``_now``, and makes timeout and end of a read exclusive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dpgateway import DriverError

T = TypeVar("T")

PATIENCE = 3.0
"""Timeout of a read in seconds. A board's registers, and files of /sys, take microseconds; the thread that reads them
waits for a second or two on a node that is overloaded, which is no reason to call the board Unhealthy."""


class Hung(DriverError):
    """A read didn't end within its timeout."""


@dataclass(eq=False)
class _Read(Generic[T]):
    """One read, which can't be interrupted."""

    began: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    answers: list[T] = field(default_factory=list)
    """The answer, once there is one."""
    error: BaseException | None = None
    late: bool = False
    """Whether a caller's wait for it timed out."""


class PatientReader(Generic[T]):
    """Reads with a timeout. Thread-safe; at most one read is under way."""

    def __init__(
        self, what: str, read: Callable[[], T], late: Callable[[], None] = lambda: None, patience: float = PATIENCE
    ) -> None:
        """``what`` names the source for people; ``late`` is called after a read that ended too late for its caller;
        ``patience`` is the timeout in seconds.
        """
        self._what, self._read, self._late, self._patience = what, read, late, patience
        self._lock = threading.Lock()
        self._now: _Read[T] | None = None

    def read(self) -> T:
        """A fresh answer. Raises Hung after the timeout, or the read's own error."""
        ours = False
        while not ours:  # a read that began before this call may return an outdated answer
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


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls that each wait for one board, on a thread for each. Raises the first call's error."""
    futures: list[Future[T]] = [Future() for _ in calls]

    def run(future: Future[T], call: Callable[[], T]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # raised by the caller
            future.set_exception(error)

    for one in zip(futures, calls, strict=True):
        try:
            threading.Thread(target=run, args=one, name="ask a board", daemon=True).start()
        except RuntimeError:  # no thread can be started
            run(*one)
    return [future.result() for future in futures]

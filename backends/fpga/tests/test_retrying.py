"""A board's retries: a cancelled one makes no attempt, however late it is cancelled."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import FrameType

import pytest
from dpgateway_fpga import FpgaOptions, retrying
from dpgateway_fpga.retrying import BoardRetries


@contextmanager
def fired() -> Iterator[Callable[[], bool]]:
    """Threads begun meanwhile stop at their first call into ``retrying``; yields what waits for one to be there."""
    there, go = threading.Event(), threading.Event()
    held: list[threading.Thread] = []

    def trace(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename == retrying.__file__ and not held:
            held.append(threading.current_thread())
            there.set()
            assert go.wait(20)

    before = threading.gettrace()
    threading.settrace(trace)
    try:
        yield lambda: there.wait(20)
    finally:
        threading.settrace(before)
        go.set()
    held[0].join(20)


def hourly(retries: BoardRetries) -> None:
    retries.settle(100, again=True)


@pytest.mark.parametrize("cancel", [BoardRetries.close, lambda one: one.settle(0), hourly], ids=range(3))
def test_a_fired_retry_can_be_cancelled(options: FpgaOptions, cancel: Callable[[BoardRetries], None]) -> None:
    before = set(threading.enumerate())
    attempts: list[int] = []
    soon = replace(options, retry_first=timedelta(microseconds=1), retry_limit=timedelta(hours=1))
    retries = BoardRetries(soon, lambda: attempts.append(1), pytest.fail)
    with fired() as wait:
        retries.plan()
        assert wait()
        cancel(retries)
    retries.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive(), "a retry that was planned meanwhile is still planned"
    assert attempts == []

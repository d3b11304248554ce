"""Calls a driver's methods concurrently, as the gateway's lanes do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpgateway.drivers.contract import abilities
from dpgateway.model import Device
from dpgateway.testing.calls import Caller, DirectCaller, broken

_SECONDS = 0.5
_ROUNDS = range(2, 2000)  # at least and at most, whatever the time
_PREPARERS = 4


def check_concurrency(caller: Caller, devices: list[Device]) -> None:
    """One thread lists, one allocates, and up to four prepare a device each; their answers mustn't change."""
    # The work has threads of its own, so the calls need none.
    caller = DirectCaller(caller.driver, caller.seconds)
    ids = sorted(device.id for device in caller.devices())
    alone = [caller.allocate([device]) for device in devices]

    def listing() -> None:
        if (found := sorted(device.id for device in caller.devices())) != ids:
            raise caller.broken(
                "devices()", f"expected the same ids while other methods run, found {ids}, then {found}"
            )

    def allocating() -> None:
        if (found := [caller.allocate([device]) for device in devices]) != alone:
            raise caller.broken(
                "allocate", f"expected the same answers while other methods run, found {alone}, then {found}"
            )

    work = [listing, allocating]
    if "prepare" in abilities(caller.driver):
        work += [_preparing(caller, device) for device in devices[:_PREPARERS]]
    with _many_switches():
        _at_once(caller, work)


def _preparing(caller: Caller, device: Device) -> Callable[[], None]:
    def preparing() -> None:
        caller.nothing("prepare", [device])

    return preparing


def _at_once(caller: Caller, work: list[Callable[[], None]]) -> None:
    # All begin at once, and the first error ends all. They are daemons: a stuck method mustn't keep the process alive.
    barrier = threading.Barrier(len(work))
    errors: list[AssertionError] = []

    def repeat(step: Callable[[], None]) -> None:
        barrier.wait()
        end = time.monotonic() + _SECONDS
        try:
            for number in range(_ROUNDS.stop):
                if errors or (number >= _ROUNDS.start and time.monotonic() > end):
                    return
                step()
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(step,), name=step.__name__, daemon=True) for step in work]
    for thread in threads:
        thread.start()
    stuck = _stuck(threads, _SECONDS + caller.seconds)
    if errors:
        raise errors[0]
    if stuck:
        raise broken(caller.driver, f": expected all methods to return when they run at once, found {stuck} stuck")


def _stuck(threads: list[threading.Thread], seconds: float) -> list[str]:
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread.name for thread in threads if thread.is_alive()]


@contextmanager
def _many_switches() -> Iterator[None]:
    """Switches threads far more often than usual, to provoke races."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)

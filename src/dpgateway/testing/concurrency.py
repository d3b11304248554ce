"""Calls a driver's methods concurrently, as the gateway's lanes do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from dpgateway.drivers.contract import abilities
from dpgateway.model import Device
from dpgateway.testing.calls import Caller, broken

_SECONDS = 0.5
_ROUNDS = range(2, 2000)  # at least and at most, whatever the time
_PREPARERS = 4


def check_concurrency(caller: Caller, devices: list[Device]) -> None:
    """One thread lists, one allocates, and up to four prepare a device each; their answers mustn't change."""
    # The work has threads of its own, so the calls need none.
    caller = Caller(caller.driver, caller.seconds, direct=True)
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

    work: list[tuple[str, Callable[[], None]]] = [("listing", listing), ("allocating", allocating)]
    if "prepare" in abilities(caller.driver):
        work += [("preparing", partial(caller.nothing, "prepare", [device])) for device in devices[:_PREPARERS]]

    # Threads switch far more often than usual, to provoke races.
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        _at_once(caller, work)
    finally:
        sys.setswitchinterval(usual)


def _at_once(caller: Caller, work: list[tuple[str, Callable[[], None]]]) -> None:
    # All begin at once, and the first error ends all. They are daemons: a stuck method mustn't keep the process alive.
    barrier = threading.Barrier(len(work))
    errors: list[AssertionError] = []

    def repeat(step: Callable[[], None]) -> None:
        barrier.wait()
        end, number = time.monotonic() + _SECONDS, 0
        try:
            while not errors and number < _ROUNDS.stop and (number < _ROUNDS.start or time.monotonic() <= end):
                step()
                number += 1
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(step,), name=name, daemon=True) for name, step in work]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _SECONDS + caller.seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = [thread.name for thread in threads if thread.is_alive()]
    if errors:
        raise errors[0]
    if stuck:
        raise broken(caller.driver, f": expected all methods to return when they run at once, found {stuck} stuck")

"""The faults active now: owns the plans, the clock, and the waiting calls.

Theory. One timer is armed for the next time at which any fault begins or ends. When it fires, or when a plan changes,
it is armed anew, waiting calls check their condition again, and ``changed`` is called. ``_plans`` is replaced, never
mutated, because ``active`` reads it without the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dpgateway import DriverError
from dpgateway_simulated.faults import Call, Fault, FaultPlan


class Timeline:
    """Calls ``changed`` whenever a fault begins or ends. Without scheduled faults it has no thread."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._condition = threading.Condition()  # guards the fields below, and wakes waiting calls
        self._plans: dict[str, FaultPlan] = {}
        self._timer: threading.Timer | None = None
        self._closed = False

    def plan(self, source: str, faults: tuple[Fault, ...]) -> None:
        """Replaces the faults of ``source``; those of other sources stay."""
        with self._condition:
            self._plans = {**self._plans, source: FaultPlan(faults, time.monotonic())}
        self._tick()

    def active(self, call: Call | None = None) -> list[Fault]:
        """The faults of ``call``; without it, those of the devices."""
        now = time.monotonic()
        return [fault for plan in self._plans.values() for fault in plan.active(now) if fault.call == call]

    def wait(self, until: Callable[[], bool], seconds: float | None) -> None:
        """Waits for ``until``, at most ``seconds`` (None: no limit). Raises DriverError if the timeline is closed."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or until(), seconds)
            if self._closed:
                raise DriverError("the simulated driver is closed")

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._rearm()
            self._condition.notify_all()

    def _tick(self) -> None:
        with self._condition:
            self._rearm()
            self._condition.notify_all()
        self._changed()

    def _rearm(self) -> None:
        if self._timer:
            self._timer.cancel()
        now = time.monotonic()
        moments = [moment for plan in self._plans.values() if (moment := plan.next_change(now)) is not None]
        self._timer = None
        if moments and not self._closed:
            self._timer = threading.Timer(min(moments) - now, self._tick)
            self._timer.daemon = True
            self._timer.start()

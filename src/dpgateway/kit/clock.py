"""The time, as a parameter: tests of what depends on it have a clock of their own."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The module ``time``, or a test's clock."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...

"""How long to wait before something is tried again."""

from __future__ import annotations


def doubling(failures: int, longest: float, first: float = 1.0) -> float:
    """Seconds after so many failures in a row: ``first``, then twice as long each time, up to ``longest``."""
    doublings = min(failures - 1, 40)  # days of failures would be more than a float holds
    return min(longest, first * 2.0**doublings)

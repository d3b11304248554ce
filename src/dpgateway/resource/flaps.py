"""Counts how often each device turns Unhealthy. One that does so all the time is summed up once a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MINUTE = 60.0
"""Seconds over which is counted."""
FEW = 3
"""Times in a minute that a device may turn Unhealthy and is no flapping device."""


class Flaps:
    """One owner, who says when a minute is over."""

    def __init__(self) -> None:
        self._falls: Counter[str] = Counter()
        """How often each device turned Unhealthy in this minute."""
        self._flapping: Mapping[str, int] = {}
        """The same of the last minute, of the devices that flapped."""

    def fell(self, device: str) -> None:
        self._falls[device] += 1

    def flaps(self, device: str) -> bool:
        """Whether its changes are counted only. A device that flapped in the last minute needs to fall but once."""
        return self._falls[device] > (0 if device in self._flapping else FEW)

    def end_minute(self) -> Mapping[str, int]:
        """How often each flapping device fell in the minute that is over."""
        self._flapping = {device: falls for device, falls in self._falls.items() if self.flaps(device)}
        self._falls.clear()
        return self._flapping

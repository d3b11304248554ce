"""Which of its possible names an object has: the best one that no other object has as well.

An object keeps its name for as long as the driver runs. So a second stick with the serial number of a first one doesn't
rename the first, and the second one isn't renamed when the first is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST = 4096
"""Names that are remembered. A port that saw so many sticks has others to care for."""

Possible = tuple[str, ...]
"""Of an object, the best one first: serial number, address."""


class Names:
    """Those that objects have had."""

    def __init__(self) -> None:
        self._had: dict[Possible, str] = {}
        self._owners: dict[str, Possible] = {}

    def choose(self, possible: Possible, counted: Mapping[str, int]) -> str:
        """``counted``: how many objects may have a name now."""
        if len(possible) == 1:
            return possible[0]
        if (name := self._had.get(possible)) is None:
            name = next((one for one in possible if counted[one] == 1), possible[-1])
            self._give(name, possible)
        return name

    def _give(self, name: str, possible: Possible) -> None:
        if (before := self._owners.pop(name, None)) is not None:  # it is gone, else the name would be counted twice
            del self._had[before]
        elif len(self._had) >= MOST:
            oldest = next(iter(self._had))
            del self._owners[self._had.pop(oldest)]
        self._had[possible] = name
        self._owners[name] = possible

"""Which of its possible names an object has: the best one that no other object has as well.

An object keeps its name for as long as the driver runs. So a second stick with the serial number of a first one doesn't
rename the first, and the second one isn't renamed when the first is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from dpgateway_chardev.forming import Formed, Member, Rule, formed

MOST = 4096
"""Names that are remembered. A port that saw so many sticks has others to care for."""

Possible = tuple[str, ...]
"""Of an object, the best one first: serial number, address."""


class Names:
    """Those that objects, and groups of them, have had."""

    def __init__(self) -> None:
        self._had: dict[Possible, str] = {}
        self._owners: dict[str, Possible] = {}
        self._formed: Sequence[Formed] = ()
        self._called: dict[str, tuple[str, frozenset[Possible]]] = {}
        """By what ``group.by`` says: the group's id, and its objects."""
        self.held: Iterable[str] = ()
        """The ids that containers hold."""

    def form(self, there: Sequence[Member], rule: Rule) -> Sequence[Formed]:
        """The groups that there are now, without ``group.by``."""
        self._formed = formed(self._formed, there, rule, self.held)
        return self._formed

    def called(self, group: str, objects: Collection[Possible], id_: str | None) -> str | None:
        """The id of the group of which ``group.by`` says this: what it was as long as one object stays in it, else
        ``id_``; None, if that is unknown, too.
        """
        before, members = self._called.pop(group, ("", frozenset[Possible]()))
        known = before if not members.isdisjoint(objects) else id_
        if known is not None:
            if len(self._called) >= MOST:
                del self._called[next(iter(self._called))]
            self._called[group] = known, frozenset(objects)
        return known

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

"""Names of objects, and groups of objects, that outlast a look.

Names. An object may have several: its serial number, its address. It takes the best one that no other object has as
well, and keeps it for as long as the driver runs: a second stick with the serial number of a first one doesn't rename
the first, and isn't renamed when the first is gone.

Groups. A *member* is an object by its name. A *formed* group keeps its members and its id for as long as the driver
runs, present or not. A group that lacks a member is incomplete; neither the rest of it nor a newcomer makes it another
device. New groups are formed of members without a group, in the order of their names. No rule without a memory could do
that: with A and B, B and C, or A and C alone, each pair is a device; with all three, one of the pairs has to stay.

After a restart, groups are formed again: first those whose ids containers hold, as far as the ids name their members,
then those of the remaining members in the order of names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

MOST = 4096
"""The most names, and groups, to remember. The oldest absent ones are forgotten first."""
JOINT = "+"
"""Between the names of members in an id."""

Possible = tuple[str, ...]
"""Of an object, the best one first: serial number, address."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An object of a group."""

    kind: int
    """The alternative of match that takes it; 0, if all are alike."""
    name: str
    number: int = 0
    """Which one it is of several objects that share the name."""


@dataclass(frozen=True, slots=True)
class Formed:
    """The members of one device, the needed ones first."""

    id: str
    members: tuple[GroupMember, ...]
    needed: int
    """How many of them have to be there."""
    proven: bool = True
    """Whether all were present together once; else only a container's id vouches for the group, until released."""

    def lacking(self, there: Collection[GroupMember]) -> Sequence[GroupMember]:
        return [one for one in self.members[: self.needed] if one not in there]


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a group, without ``group.by``."""

    size: int | None = None
    """The number of members, of any kind; None: one of each kind."""
    kinds: tuple[int, ...] = ()
    """The kinds that every group needs."""
    optional: tuple[int, ...] = ()
    named: bool = True
    """Whether a group's id is its members' names; else it is the first one's."""

    def id(self, members: Sequence[GroupMember]) -> str:
        return JOINT.join(one.name for one in members) if self.named else members[0].name


def formed(
    before: Sequence[Formed], there: Sequence[GroupMember], rule: Rule, held: Iterable[str] = ()
) -> list[Formed]:
    """The groups that there are now, with those of ``before`` first, also if nothing of them is ``there``.

    ``there``: the members, in order. ``held``: ids of groups that have to be formed again if they aren't known.
    """
    present, ids = set(there), set(held)
    groups = [replace(one, proven=one.proven or not one.lacking(present)) for one in before]
    groups = [one for one in groups if one.proven or one.id in ids]
    taken = {member for one in groups for member in one.members}
    for members in _again(sorted(ids), rule):
        if taken.isdisjoint(members) and not present.isdisjoint(members):
            groups.append(Formed(rule.id(members), tuple(members), len(members), proven=present.issuperset(members)))
            taken.update(members)
    groups += _new([one for one in there if one not in taken], rule)
    taken = {member for one in groups for member in one.members}
    # an optional member joins the first group without one of its kind
    for member in there:
        if member.kind in rule.optional and member not in taken:
            lonely = (n for n, one in enumerate(groups) if member.kind not in {other.kind for other in one.members})
            if (number := next(lonely, None)) is not None:
                groups[number] = replace(groups[number], members=(*groups[number].members, member))
    away = [one for one in groups if present.isdisjoint(one.members)]
    forgotten = {one.id for one in away[: max(0, len(groups) - MOST)]}
    return [one for one in groups if one.id not in forgotten]


def _again(held: Iterable[str], rule: Rule) -> Iterator[Sequence[GroupMember]]:
    """The members that held ids name. An id whose names contain the joint can't be read."""
    kinds = (0,) * rule.size if rule.size is not None else rule.kinds
    for id_ in held if rule.named else ():
        names = id_.split(JOINT)
        if len(names) == len(kinds) and all(names):
            numbers = [names[:place].count(name) if rule.size is not None else 0 for place, name in enumerate(names)]
            yield [GroupMember(*one) for one in zip(kinds, names, numbers, strict=True)]


def _new(free: Sequence[GroupMember], rule: Rule) -> Iterator[Formed]:
    """New groups of members that belong to none."""
    if rule.size is not None:
        whole = len(free) - len(free) % rule.size
        groups: Iterable[Sequence[GroupMember]] = (
            free[start : start + rule.size] for start in range(0, whole, rule.size)
        )
    else:
        groups = zip(*([one for one in free if one.kind == kind] for kind in rule.kinds), strict=False)
    yield from (Formed(rule.id(members), tuple(members), len(members)) for members in groups)


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

    def form(self, there: Sequence[GroupMember], rule: Rule) -> Sequence[Formed]:
        """The groups that there are now, without ``group.by``."""
        self._formed = formed(self._formed, there, rule, self.held)
        return self._formed

    def called(self, group: str, objects: Collection[Possible], id_: str | None) -> str | None:
        """The id of the group with this text of ``group.by``: the earlier id while one object stays in the group, else
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

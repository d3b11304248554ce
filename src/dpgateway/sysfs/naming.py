"""Names of objects, and groups of objects, that outlast a look.

Names. An object may have several: its serial number, its address. It takes the best one that no other object shares,
and keeps it while the driver runs: a second stick with the serial number of a first one doesn't rename the first, and
isn't renamed when the first is gone.

Groups. A *member* is an object, known by its name. A *formed* group keeps its members and its id while the driver runs,
present or not. A group that lacks a member is incomplete; neither its remaining members nor a newcomer make another
device of it. New groups are formed from members without a group, in order of name. No stateless rule could do that:
with A and B, B and C, or A and C alone, each pair is a device; with all three, one of the pairs has to stay.

After a restart, groups are formed again: first those whose ids containers hold, as far as the ids name their members,
then those of the remaining members in the order of names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

MOST = 4096
"""Limit of remembered names, and of remembered groups. The oldest absent ones are forgotten first."""
JOINT = "+"
"""Joins the names of members in an id."""

Possible = tuple[str, ...]
"""An object's candidate names, best first: serial number, address."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An object of a group."""

    kind: int
    """The number of its alternative of match; 0 for all members with ``group.size``."""
    name: str
    number: int = 0
    """Its index among the objects that share the name."""


@dataclass(frozen=True, slots=True)
class Formed:
    """The members of one device, required ones first."""

    id: str
    members: tuple[GroupMember, ...]
    needed: int
    """The number of required members."""
    proven: bool = True
    """Whether all members were present together once. An unproven group, formed from a held id, lasts until the id is
    released."""

    def lacking(self, there: Collection[GroupMember]) -> Sequence[GroupMember]:
        return [one for one in self.members[: self.needed] if one not in there]


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for forming groups without ``group.by``."""

    size: int | None = None
    """The number of members, of any kind; None: one of each kind."""
    kinds: tuple[int, ...] = ()
    """The kinds that every group requires."""
    optional: tuple[int, ...] = ()
    named: bool = True
    """Whether a group's id joins the names of its members; otherwise it is the first member's name."""

    def id(self, members: Sequence[GroupMember]) -> str:
        return JOINT.join(one.name for one in members) if self.named else members[0].name


def formed(
    before: Sequence[Formed], there: Sequence[GroupMember], rule: Rule, held: Iterable[str] = ()
) -> list[Formed]:
    """The groups now: those of ``before``, present or not, then new ones.

    ``there``: the members present, in order. ``held``: ids in containers, whose groups are formed again if unknown.
    """
    present, ids = set(there), set(held)
    groups = [replace(one, proven=one.proven or not one.lacking(present)) for one in before]
    groups = [one for one in groups if one.proven or one.id in ids]
    taken = {member for one in groups for member in one.members}

    # held ids come before new groups, which would take the members of a container's device after a restart
    for members in _again(sorted(ids), rule):
        if taken.isdisjoint(members) and not present.isdisjoint(members):
            groups.append(Formed(rule.id(members), tuple(members), len(members), proven=present.issuperset(members)))
            taken.update(members)

    # new groups of the free members; the surplus stays free
    free = [one for one in there if one not in taken]
    new: Iterable[Sequence[GroupMember]]
    if rule.size is not None:
        whole = len(free) - len(free) % rule.size
        new = (free[start : start + rule.size] for start in range(0, whole, rule.size))
    else:
        new = zip(*([one for one in free if one.kind == kind] for kind in rule.kinds), strict=False)
    groups += [Formed(rule.id(members), tuple(members), len(members)) for members in new]
    taken = {member for one in groups for member in one.members}

    # an optional member joins the first group without one of its kind
    for member in there:
        if member.kind in rule.optional and member not in taken:
            lonely = (n for n, one in enumerate(groups) if member.kind not in {other.kind for other in one.members})
            if (number := next(lonely, None)) is not None:
                groups[number] = replace(groups[number], members=(*groups[number].members, member))

    # only groups without a present member are forgotten, so that no device changes while it is there
    away = [one for one in groups if present.isdisjoint(one.members)]
    forgotten = {one.id for one in away[: max(0, len(groups) - MOST)]}
    return [one for one in groups if one.id not in forgotten]


def _again(held: Iterable[str], rule: Rule) -> Iterator[Sequence[GroupMember]]:
    """The members that held ids name. An id with ``JOINT`` within a name is ambiguous, and skipped."""
    kinds = (0,) * rule.size if rule.size is not None else rule.kinds
    for id_ in held if rule.named else ():
        names = id_.split(JOINT)
        if len(names) == len(kinds) and all(names):
            numbers = [names[:place].count(name) if rule.size is not None else 0 for place, name in enumerate(names)]
            yield [GroupMember(*one) for one in zip(kinds, names, numbers, strict=True)]


class Names:
    """The names and groups that objects have had."""

    def __init__(self) -> None:
        self._had: dict[Possible, str] = {}
        """The name of each object with several candidates, oldest first."""
        self._owners: dict[str, Possible] = {}
        """The inverse of ``_had``: no two objects have one name."""
        self._formed: Sequence[Formed] = ()
        self._called: dict[str, tuple[str, frozenset[Possible]]] = {}
        """The id and the objects of each group with ``group.by``, keyed by its text."""
        self.held: Iterable[str] = ()
        """The ids that containers hold."""

    def form(self, there: Sequence[GroupMember], rule: Rule) -> Sequence[Formed]:
        """The groups now, without ``group.by``."""
        self._formed = formed(self._formed, there, rule, self.held)
        return self._formed

    def called(self, group: str, objects: Collection[Possible], id_: str | None) -> str | None:
        """The id of the group with this text of ``group.by``: the earlier id if the group kept an object since, else
        ``id_``, which may be None (unknown).
        """
        before, members = self._called.pop(group, ("", frozenset[Possible]()))
        known = before if not members.isdisjoint(objects) else id_
        if known is not None:
            if len(self._called) >= MOST:
                del self._called[next(iter(self._called))]
            self._called[group] = known, frozenset(objects)
        return known

    def choose(self, possible: Possible, counted: Mapping[str, int]) -> str:
        """The name of an object, chosen once. ``counted``: for each name, the number of objects that may have it."""
        if len(possible) == 1:
            return possible[0]
        if (name := self._had.get(possible)) is None:
            name = next((one for one in possible if counted[one] == 1), possible[-1])
            if (before := self._owners.pop(name, None)) is not None:  # it is gone, else the name would be counted twice
                del self._had[before]
            elif len(self._had) >= MOST:
                oldest = next(iter(self._had))
                del self._owners[self._had.pop(oldest)]
            self._had[possible], self._owners[name] = name, possible
        return name

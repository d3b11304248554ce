"""Groups matched objects into devices, and gives each device its id.

Theory. A *part* is a matched object, or with ``parts`` one of several devices within an object. A *whole* is a device:
one part, or several that ``group`` puts together. Objects that match and end up in no device are ``left``, each with
its reason.

``parts`` depends on one object alone, so its result can be kept until an event touches the object. ``wholes`` depends
on all parts: on how many objects may have a name, and with ``group`` on every other member. It is computed anew when
any part changed. Names and formed groups outlast the look in ``Names`` (naming.py).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from dpgateway.sysfs.identity import identity
from dpgateway.sysfs.matching import Mismatch
from dpgateway.sysfs.naming import GroupMember, Names, Rule
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.selection import PART, GroupOption, Selection
from dpgateway.sysfs.templates import Matched, Unfilled, template
from dpgateway.sysfs.values import as_number

MOST_PARTS = 1000
"""Limit of parts of one object, so that a bogus count can't fill the memory."""


class ChangedError(Exception):
    """A device differs from an earlier look. The text names the difference."""


@dataclass(frozen=True, slots=True)
class Part:
    """An object, or a part of one, that belongs to a device."""

    kind: int
    """The number of the alternative that matched."""
    names: tuple[str, ...]
    """Candidate ids for a device of this part alone, best first."""
    found: Matched
    group: str
    """The filled template ``group.by``; empty without one."""

    def __str__(self) -> str:
        return " or ".join(self.names) + (f" of {self.group}" if self.group else "")


@dataclass(frozen=True, slots=True)
class Unoffered:
    """Why a matched object can't be offered."""

    test: str
    """The configuration key at fault."""
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.test}: found {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A device: its id, its parts, and a description of a missing part."""

    id: str
    parts: tuple[Part, ...]
    missing: str | None = None

    @property
    def paths(self) -> Sequence[str]:
        """The paths of its objects."""
        return [part.found.thing.path for part in self.parts]


class Grouping:
    """Applies a selection in one look: objects to parts, and parts to devices."""

    def __init__(self, look: Look, selection: Selection, names: Names) -> None:
        self._look, self._selection, self._names = look, selection, names
        self._kinds, self._group = selection.match, selection.group
        by = None if self._group is None else self._group.by
        self._by = None if by is None else template(by, tuple(PART))
        self._id = None if selection.id is None else template(selection.id, ("group", *PART))
        self.left: dict[Object, Unoffered] = {}
        """The matched objects that can't be offered, each with its reason."""

    # from an object to its parts

    def parts(self, thing: Object, kinds: Iterable[int]) -> Iterator[Part]:
        """The parts of an object by the first of these alternatives that takes it; none if no alternative does."""
        results = ((kind, self._kinds[kind].look(self._look, thing)) for kind in kinds)
        kind, ancestor = next(((kind, one) for kind, one in results if isinstance(one, Object)), (0, None))
        if ancestor is not None:
            one = Matched(thing, ancestor)
            several = self._names_of_parts(one)
            for found in [one] if several is None else [replace(one, part=name) for name in several]:
                if (part := self._part(kind, found)) is not None:
                    yield part

    def again(self, part: Part) -> Part:
        """The same part in this look. Raises ChangedError unless it still matches, with the same names and group."""
        thing = f"/sys/{part.found.thing.path}"
        # from coarse to fine, so that the error names the actual change
        if not self._look.exists(part.found.thing):
            raise ChangedError(f"{thing} is gone")
        result = self._kinds[part.kind].look(self._look, part.found.thing)
        if isinstance(result, Mismatch):
            raise ChangedError(f"{thing} isn't what match describes any more: {result}")
        found = replace(part.found, ancestor=result)
        several = self._names_of_parts(found)
        if several is not None and found.part not in several:
            raise ChangedError(f"{thing} has no part {found.part} any more")
        now = self._part(part.kind, found)
        if now != part:
            raise ChangedError(f"{thing} is {now or 'without a name'} now, it was {part}")
        return now

    def _names_of_parts(self, found: Matched) -> Sequence[str] | None:
        """The names of the parts of one object; None if the object is one device."""
        if (parts := self._selection.parts) is None:
            return None
        text = template(parts.entries or parts.count or "").fill(self._look, found)
        if isinstance(text, Unfilled):
            return ()
        if parts.entries is not None:
            return [path.rpartition("/")[2] for path in self._look.entries(found.thing, text)]
        number = as_number(text) if text.isdecimal() else None
        return [str(one) for one in range(min(number or 0, MOST_PARTS))]

    def _part(self, kind: int, found: Matched) -> Part | None:
        look, thing = self._look, found.thing
        group: str | Unfilled = "" if self._by is None else self._by.fill(look, found, {"part": found.part})
        if isinstance(group, Unfilled):
            self.left[thing] = Unoffered("group.by", f"that {group}", "a text")
            return None
        if self._by is not None and not group:
            # else all objects without a value would be one device
            self.left[thing] = Unoffered("group.by", "an empty text", "a text")
            return None
        if self._id is None:
            after = f"/{found.part}" if found.part else ""
            return Part(kind, tuple(f"{name}{after}" for name in identity(look, thing)), found, group)
        name = self._id.fill(look, found, {"group": group, "part": found.part})
        if isinstance(name, str):
            return Part(kind, (name,), found, group)

        # a missing attribute may be an ancestor's
        field, _, path = name.field.partition(":")
        has = (one for one in thing.line if field == "attr" and isinstance(look.value(one, path), str))
        above = "".join(f"; {one.kernel}, which it is in, has one: write attrs" for one in islice(has, 1))
        self.left[thing] = Unoffered("id", f"that {name}{above}", "a text")
        return None

    # from parts to devices

    def wholes(self, parts: Iterable[Part]) -> Iterator[Whole]:
        """The devices. Several may have the same id; the survey lists such an id as Unhealthy."""
        inorder = sorted(parts, key=operator.attrgetter("kind", "names"))  # never in order of enumeration
        counted = Counter(name for part in inorder for name in set(part.names))  # how many objects may have a name
        if self._group is None:
            yield from (Whole(self._names.choose(part.names, counted), (part,)) for part in inorder)
        elif self._by is not None:
            yield from self._by_text(self._group, inorder)
        else:
            yield from self._formed(self._group, inorder, counted)

    def _by_text(self, group: GroupOption, inorder: Iterable[Part]) -> Iterator[Whole]:
        """With ``by``: parts with the same text are one device. The text is its id, because all parts share it."""
        groups: dict[str, list[Part]] = {}
        for part in inorder:
            groups.setdefault(part.group, []).append(part)
        for text, parts in groups.items():
            # an optional object alone founds no device, but stays in one that was there before
            needed = next((part for part in parts if not self._kinds[part.kind].optional), None)
            own = None if needed is None else text if self._id is None else needed.names[0]
            id_ = self._names.called(text, [part.names for part in parts], own)
            if id_ is None:
                self._leave(parts, _ALONE)
                continue
            there = {part.kind for part in parts}
            absent = [kind for kind, one in enumerate(self._kinds) if not one.optional and kind not in there]
            missing = None
            if needed is None:
                missing = "all that isn't optional is missing"
            elif group.size is not None and len(parts) != group.size:
                missing = _number(group.size, len(parts))
            elif group.each and absent:
                missing = f"there is no object for match[{absent[0]}]"
            yield Whole(id_, tuple(parts), missing)

    def _formed(self, group: GroupOption, inorder: Iterable[Part], counted: Mapping[str, int]) -> Iterator[Whole]:
        """Without ``by``: groups are formed by size or by kinds, and stay together (naming.py)."""
        optional = tuple(kind for kind, one in enumerate(self._kinds) if one.optional)
        needed = tuple(kind for kind, one in enumerate(self._kinds) if not one.optional)
        rule = Rule(group.size, needed, optional, named=self._id is None)

        # a member is known by its name, because its path may change; members of one name are numbered
        members: dict[GroupMember, Part] = {}
        seen = Counter[tuple[int, str]]()
        for part in inorder:
            kind, name = 0 if group.size is not None else part.kind, self._names.choose(part.names, counted)
            members[GroupMember(kind, name, seen[kind, name])] = part
            seen[kind, name] += 1

        groups = self._names.form(list(members), rule)
        for one in groups:
            lacking, missing = one.lacking(members), None
            if lacking:
                missing = f"there is no object for match[{lacking[0].kind}]"
                if rule.size is not None:
                    missing = _number(rule.size, one.needed - len(lacking))
                missing += f": {' and '.join(member.name for member in lacking)} is missing"
            if parts := [members[member] for member in one.members if member in members]:
                yield Whole(one.id, tuple(parts), missing)

        # the rest: too few for a group, listed as an Unhealthy device; or without a counterpart, left
        taken = {member for one in groups for member in one.members}
        rest = {member: part for member, part in members.items() if member not in taken}
        if group.size is None:
            for member, part in rest.items():
                self._leave([part], _ALONE if member.kind in rule.optional else _NO_COUNTERPART)
        elif rest:
            yield Whole(rule.id(list(rest)), tuple(rest.values()), _number(group.size, len(rest)))

    def _leave(self, parts: Iterable[Part], why: Unoffered) -> None:
        self.left |= {part.found.thing: why for part in parts}


_ALONE = Unoffered("optional", "nothing that it belongs to", "an object that isn't optional")
_NO_COUNTERPART = Unoffered("group.each", "no counterpart", "one object of each kind")


def _number(expected: int, found: int) -> str:
    return f"expected {expected} objects, found {found}"

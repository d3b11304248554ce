"""Which matched objects are one device, and what that device's id is. Pure, but for the look at sysfs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from dpgateway import refuse
from dpgateway.sysfs import Look, Match, Matched, Object, Template, Unfilled, identity
from dpgateway_chardev.forming import Formed, Member, Rule
from dpgateway_chardev.naming import Names
from dpgateway_chardev.settings import NodeOption, Parts

Key = TypeVar("Key", bound=Hashable)
MOST_PARTS = 1000
"""Of one object, so that a strange number can't fill the memory."""
PART = {"part": "the name of the part of an object that a device is"}


@dataclass(frozen=True, slots=True)
class Kind(Match):
    """One alternative of what is matched."""

    optional: bool = field(
        default=False, metadata={"help": "with group.each: whether a device is whole without an object of this kind"}
    )
    nodes: tuple[NodeOption, ...] | None = field(
        default=None, metadata={"help": "the nodes of objects of this kind, instead of the driver's", "single": True}
    )


@dataclass(frozen=True, slots=True)
class Group:
    """What makes several objects one device."""

    short_form: ClassVar[str] = "by"

    by: str | None = field(
        default=None, metadata={"help": "a template: objects for which it has the same text are one device"}
    )
    size: int | None = field(default=None, metadata={"help": "how many objects make a device"})
    each: bool = field(default=False, metadata={"help": "a device needs an object of each of match's alternatives"})

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.by is None and self.size is None and not self.each:
            yield "expected by, size or each, found none of them"
        if self.size is not None and self.size < 2:
            yield f"size: expected 2 or more, found {self.size}"
        if self.size is not None and self.each:
            yield "size: expected it without each, which has one of each kind"


@dataclass(frozen=True, slots=True)
class Part:
    """An object that belongs to a device."""

    kind: int
    names: tuple[str, ...]
    """What its id could be if it were a device of its own, the best one first."""
    found: Matched = field(compare=False)
    group: str = field(compare=False)
    """What ``by`` says of it."""

    def same(self, other: Part) -> bool:
        """In all that is known of them."""
        return self == other and (self.found, self.group) == (other.found, other.group)


@dataclass(frozen=True, slots=True)
class Left:
    """Why an object that matches can't be offered."""

    test: str
    """The key that is the reason."""
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.test}: found {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A device: its parts, and what is missing, if anything is."""

    id: str
    parts: tuple[Part, ...]
    missing: str | None = None

    @property
    def paths(self) -> Sequence[str]:
        """Of its objects."""
        return [part.found.thing.path for part in self.parts]

    def same(self, other: Whole) -> bool:
        """Of the very same parts."""
        if len(self.parts) != len(other.parts) or (self.id, self.missing) != (other.id, other.missing):
            return False
        return all(map(operator.is_, self.parts, other.parts))


class Grouping:
    """What a configuration says of it, for one look at sysfs. ``notices`` has what can't be offered, and why."""

    def __init__(self, look: Look, kinds: Sequence[Kind], group: Group | None, id_: str | None, names: Names) -> None:
        self._look, self._kinds, self._group, self._names = look, kinds, group, names
        self._by = None if group is None or group.by is None else Template.parse(group.by, PART)
        self._id = None if id_ is None else Template.parse(id_, {"group": "", **PART})
        self.left: dict[Object, Left] = {}
        """Objects that match, and can't be offered."""

    @property
    def notices(self) -> dict[str, None]:
        return {f"/sys/{thing.path} can't be offered: {why}": None for thing, why in self.left.items()}

    def wholes(self, parts: Iterable[Part]) -> Iterator[Whole]:
        """The devices; one id may come several times."""
        inorder = sorted(parts, key=operator.attrgetter("kind", "names"))
        if self._group is None:
            counted = _counted(inorder)
            yield from (Whole(self._names.choose(part.names, counted), (part,)) for part in inorder)
        elif self._by is not None:
            yield from self._said(_by(inorder, lambda part: part.group))
        else:
            yield from self._formed(self._group, inorder)

    def _said(self, groups: Mapping[str, Sequence[Part]]) -> Iterator[Whole]:
        """The groups of which ``by`` says the same. The text is the id, because it is every part's."""
        for text, parts in groups.items():
            needed = next((part for part in parts if not self._kinds[part.kind].optional), None)
            own = None if needed is None else text if self._id is None else needed.names[0]
            id_ = self._names.called(text, [part.names for part in parts], own)
            if id_ is None:
                self._leave(parts, _ALONE)
            else:
                lacks = "all that isn't optional is missing" if needed is None else None
                yield Whole(id_, tuple(parts), lacks or self._missing(parts))

    def _formed(self, group: Group, inorder: Sequence[Part]) -> Iterator[Whole]:
        """The groups that were put together by their number or their kinds, and what is left over."""
        rule = self._rule(group)
        members = self._members(inorder, by_kind=group.size is None)
        groups = self._names.form(list(members), rule)
        taken = {member for one in groups for member in one.members}
        rest = {member: part for member, part in members.items() if member not in taken}
        for one in groups:
            if parts := [members[member] for member in one.members if member in members]:
                yield Whole(one.id, tuple(parts), _lacking(one, members, rule))
        if group.size is not None:
            if rest:
                yield Whole(rule.id(list(rest)), tuple(rest.values()), _number(group.size, len(rest)))
            return
        for member, part in rest.items():
            self._leave([part], _ALONE if member.kind in rule.optional else _NO_COUNTERPART)

    def _rule(self, group: Group) -> Rule:
        optional = [kind for kind, one in enumerate(self._kinds) if one.optional]
        needed = [kind for kind, one in enumerate(self._kinds) if not one.optional]
        return Rule(group.size, tuple(needed), tuple(optional), named=self._id is None)

    def _members(self, inorder: Sequence[Part], *, by_kind: bool) -> Mapping[Member, Part]:
        """The parts by what they are called, in order."""
        counted, seen = _counted(inorder), Counter[tuple[int, str]]()
        members: dict[Member, Part] = {}
        for part in inorder:
            kind, name = part.kind if by_kind else 0, self._names.choose(part.names, counted)
            members[Member(kind, name, seen[kind, name])] = part
            seen[kind, name] += 1
        return members

    def _leave(self, parts: Iterable[Part], why: Left) -> None:
        self.left |= {part.found.thing: why for part in parts}

    def part(self, kind: int, found: Matched) -> Part | None:
        group = "" if self._by is None else self._by.fill(self._look, found, {"part": found.part})
        if isinstance(group, Unfilled):
            self.left[found.thing] = Left("group.by", f"that {group}", "a text")
            return None
        if self._by is not None and not group:
            self.left[found.thing] = Left("group.by", "an empty text", "a text")
            return None
        if self._id is None:
            after = f"/{found.part}" if found.part else ""
            names = tuple(f"{name}{after}" for name in identity(self._look, found.thing))
            return Part(kind, names, found, group)
        name = self._id.fill(self._look, found, {"group": group, "part": found.part})
        if isinstance(name, Unfilled):
            self.left[found.thing] = Left("id", f"that {name}{self._above(found.thing, name)}", "a text")
            return None
        return Part(kind, (name,), found, group)

    def _above(self, thing: Object, unfilled: Unfilled) -> str:
        """Which ancestor has the attribute that the object lacks."""
        field, _, path = unfilled.field.partition(":")
        things = thing.line if field == "attr" else ()
        has = next((one for one in things if isinstance(self._look.value(one, path), str)), None)
        return "" if has is None else f"; {has.kernel}, which it is in, has one: write attrs"

    def _missing(self, parts: Sequence[Part]) -> str | None:
        if self._group is None:
            return None
        if self._group.size is not None and len(parts) != self._group.size:
            return _number(self._group.size, len(parts))
        there = {part.kind for part in parts}
        lacking = [kind for kind, one in enumerate(self._kinds) if not one.optional and kind not in there]
        return f"there is no object for match[{lacking[0]}]" if self._group.each and lacking else None


_ALONE = Left("optional", "nothing that it belongs to", "an object that isn't optional")
_NO_COUNTERPART = Left("group.each", "no counterpart", "one object of each kind")


def _counted(parts: Iterable[Part]) -> Mapping[str, int]:
    """How many objects may have a name."""
    return Counter(name for part in parts for name in set(part.names))


def _lacking(one: Formed, there: Collection[Member], rule: Rule) -> str | None:
    """What a group lacks of what it was put together of."""
    lacking = one.lacking(there)
    if not lacking:
        return None
    names = " and ".join(member.name for member in lacking)
    if rule.size is not None:
        return f"{_number(rule.size, one.needed - len(lacking))}: {names} is missing"
    return f"there is no object for match[{lacking[0].kind}]: {names} is missing"


def _number(expected: int, found: int) -> str:
    return f"expected {expected} objects, found {found}"


def _by(parts: Sequence[Part], key: Callable[[Part], Key]) -> dict[Key, list[Part]]:
    grouped: dict[Key, list[Part]] = {}
    for part in parts:
        grouped.setdefault(key(part), []).append(part)
    return grouped


def parts_of(look: Look, found: Matched, parts: Parts) -> Sequence[str]:
    """The names of the devices that an object is."""
    text = Template.parse(parts.entries or parts.count or "").fill(look, found)
    if isinstance(text, Unfilled):
        return ()
    if parts.entries is not None:
        return [path.rpartition("/")[2] for path in look.entries(found.thing, text)]
    return [str(number) for number in range(min(int(text), MOST_PARTS))] if text.isdecimal() else ()

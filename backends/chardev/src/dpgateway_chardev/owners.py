"""Whether a path leads to a node of the object for which it was computed, by the numbers that sysfs says.

A path says nothing: a link may lead elsewhere, and a file may be older than the device. A node is an object's if

- it has the object's number, or that of the thing that ``{each:...}``, ``{entry:...}`` or ``{part}`` found,
- or sysfs knows another object of this number within the first one, such as the tty in a USB device,
- or within the same device, if the kernel itself calls it so (``pcmC1D0c`` for ``controlC1``), or if the path names
  that device alone, as udev's ``by-path`` does.

Where sysfs says no number, nothing can be told. A path without fields is no object's own, unless it is the kernel's
name for the object's node.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpgateway.sysfs import HOST_DEV, DevNode, Look, Matched, Object, Parts, Template, Unfilled, place

_UP = frozenset({"device", "driver", "iommu_group", "physfn", "subsystem"})
"""Links of an object to what it is in, or belongs to."""
_ABOVE = frozenset({"kernels", "drivers", "attrs"})
"""Fields about the ancestor."""
_NEUTRAL = frozenset({"slot", "pci_number"})
"""Fields that are about nothing but the field within them."""


class Owners:
    """Asks one look at sysfs."""

    def __init__(self, look: Look, parts: Parts | None) -> None:
        self._look, self._parts = look, None if parts is None else parts.entries

    def found(self, template: Template, one: Matched, others: Mapping[str, str], count: int) -> Sequence[Object | None]:
        """What ``{each:...}``, ``{entry:...}`` or ``{part}`` found for each of the ``count`` texts of a template."""
        about = _about(template)
        if about.pattern is not None:
            things = self._things(one, about.pattern.fill(self._look, one, others))
            return things if len(things) == count else [*things[:1], None][:1] * count
        if about.part and self._parts is not None:
            pattern = Template.parse(self._parts)
            things = self._things(one, pattern.fill(self._look, one), one.part)
            return [*things, None][:1] * count
        return [None] * count

    def wrong(self, template: Template, one: Matched, path: str, node: DevNode, found: Object | None) -> str | None:
        """Why the path leads to a node that isn't the object's, if it does. ``found``: see above."""
        about, own = _about(template), one.thing
        if about.pattern is not None or about.part:
            return self._unlike(found, path, node)
        # most paths without fields are seen at once not to be the kernel's name for the object's node
        named = path.endswith(own.kernel.rpartition("/")[2]) and path == self._name(own)
        unlike = None if about.nothing and not named else self._unlike(own, path, node)
        if unlike is None or path == self._name(own) or not self._belongs(path, node, one, by_device=about.device):
            return unlike
        return None

    def _unlike(self, thing: Object | None, path: str, node: DevNode) -> str | None:
        """Why the node isn't the object's, if that has one that is known, and another one."""
        number = None if thing is None else self._look.number(thing)
        if thing is None or number is None:
            return None
        kind, found = "block" if self._look.subsystem(thing) == "block" else "char", f"{node.major}:{node.minor}"
        if kind != node.type:
            return f"expected {path} to be {kind} {number}, as sysfs says, found {node}"
        return None if number == found else f"expected {path} to be {number}, as sysfs says, found {found}"

    def _belongs(self, path: str, node: DevNode, one: Matched, *, by_device: bool) -> bool:
        other = self._of_number(path, node, one.thing)
        if other is None:
            return False
        if _is_in(other, one.thing):
            return True
        within = any(_is_in(other, device) for device in self._devices(one))
        return within and (by_device or self._name(other) == path)

    def _of_number(self, path: str, node: DevNode, thing: Object) -> Object | None:
        """The object that has the node's number, if sysfs knows one: by the number, in the subsystem by the name, or
        what the thing is in.
        """
        number, subsystem = f"{node.major}:{node.minor}", self._look.subsystem(thing)
        names = dict.fromkeys((path.rpartition("/")[2], node.real.rpartition("/")[2]))
        places = [f"dev/{node.type}/{number}", *(f"class/{subsystem}/{name}" for name in names)]
        things = itertools.chain(map(self._look.object, places), thing.line[1:])
        numbered = (one for one in things if one and self._look.number(one) == number)
        blocks = node.type == "block"
        return next((one for one in numbered if (self._look.subsystem(one) == "block") == blocks), None)

    def _devices(self, one: Matched) -> Iterator[Object]:
        """What the object is a part of: the ancestor that was matched, the next one above, and the one on a bus."""
        if one.ancestor != one.thing:
            yield one.ancestor
        above = (thing for thing in one.thing.line[1:] if isinstance(self._look.subsystem(thing), str))
        if (parent := next(above, None)) is not None:
            yield parent
        if (on := place(self._look, one.thing)) is not None:
            yield on

    def _name(self, thing: Object) -> str:
        """The kernel's path for an object's node."""
        name = self._look.said(thing, "DEVNAME")
        return f"{HOST_DEV}/{(name or thing.kernel).removeprefix(f'{HOST_DEV}/')}"

    def _things(self, one: Matched, pattern: str | Unfilled, name: str | None = None) -> Sequence[Object | None]:
        """What a pattern finds, each as the object that it is, if it is one."""
        entries = self._look.entries(one.thing, pattern) if isinstance(pattern, str) and pattern else ()
        found: list[Object | None] = []
        for entry in entries:
            if name in {None, entry.rpartition("/")[2]}:
                path = entry if entry.startswith("/") else f"/sys/{one.thing.path}/{entry}"
                found.append(self._look.object(path.removeprefix("/sys/")) if path.startswith("/sys/") else None)
        return found


@dataclass(frozen=True, slots=True)
class _About:
    """What a path is about, by its template."""

    pattern: Template | None
    """What ``{each:...}`` or ``{entry:...}`` looks for."""
    part: bool
    device: bool
    """Nothing of the object, but what it is in."""
    nothing: bool


@lru_cache(maxsize=1024)
def _about(template: Template) -> _About:
    slots = {slot.name: slot for slot in template.fields}
    patterns = [slots[name].argument for name in ("each", "entry") if name in slots]
    device = all(map(_is_above, template.fields))
    return _About(next(iter(patterns), None), "part" in slots, device, not slots)


def _is_in(thing: Object, other: Object) -> bool:
    return thing == other or thing.path.startswith(f"{other.path}/")


def _is_above(slot: object) -> bool:
    """Whether a field says of an object only what it is in."""
    name, _, argument = str(slot).partition(":")
    return name in _ABOVE | _NEUTRAL or (name in {"attr", "file"} and argument.partition("/")[0] in _UP)

"""Verifies with the device numbers in sysfs that a path's node belongs to the object for which the path was computed.

Theory. A path proves nothing: a link may lead elsewhere, and a file may be older than the device. A node belongs to an
object if its number (major:minor) is that of

- the object, or of the thing that ``{each:...}``, ``{entry:...}`` or ``{part}`` found,
- or an object within it, such as the tty in a USB device,
- or an object within the same device, if the path is the kernel's name for it (``pcmC1D0c`` for ``controlC1``), or if
  all of the path's fields are about that device, as with udev's ``by-path``.

Without a number in sysfs nothing can be verified, and the node is accepted. A path without fields belongs to no object
in particular, unless it is the kernel's name for the object's node.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpgateway.sysfs import HOST_DEV, DevNode, Look, Matched, Object, Parts, Template, Unfilled, place

_UP = frozenset({"device", "driver", "iommu_group", "physfn", "subsystem"})
"""Links from an object to its parent, driver and so on."""
_ABOVE = frozenset({"kernels", "drivers", "attrs"})
"""Fields about the ancestor."""
_NEUTRAL = frozenset({"slot", "pci_number", "regex"})
"""Fields that only convert the field in their argument."""


class Owners:
    """Verifies nodes in one look at sysfs."""

    def __init__(self, look: Look, parts: Parts | None) -> None:
        self._look, self._parts = look, None if parts is None else parts.entries

    def found(self, template: Template, one: Matched, others: Mapping[str, str], count: int) -> Sequence[Object | None]:
        """The object that ``{each:...}``, ``{entry:...}`` or ``{part}`` found, for each of the ``count`` texts of a
        template; None where it is no object, or where the template has no such field.
        """
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
        """Why the node at this path isn't the object's; None if it is, or can't be verified. ``found``: an object as
        ``found`` returns it.
        """
        about, own = _about(template), one.thing
        # such a path names one thing exactly, so no other object's node will do
        if about.pattern is not None or about.part:
            return self._unlike(found, path, node)
        # comparing the last component first saves most paths without fields the lookup of the kernel's name
        named = path.endswith(own.kernel.rpartition("/")[2]) and path == self._name(own)
        unlike = None if about.nothing and not named else self._unlike(own, path, node)
        if unlike is None or path == self._name(own) or not self._belongs(path, node, one, by_device=about.device):
            return unlike
        return None

    def _unlike(self, thing: Object | None, path: str, node: DevNode) -> str | None:
        """Why the node's number isn't the object's; None if it is, or if sysfs has no number for the object."""
        number = None if thing is None else self._look.number(thing)
        if thing is None or number is None:
            return None
        kind, found = "block" if self._look.subsystem(thing) == "block" else "char", f"{node.major}:{node.minor}"
        if kind != node.type:
            return f"expected {path} to be {kind} {number}, as sysfs says, found {node}"
        return None if number == found else f"expected {path} to be {number}, as sysfs says, found {found}"

    def _belongs(self, path: str, node: DevNode, one: Matched, *, by_device: bool) -> bool:
        # the object with the node's number: by /sys/dev, by the node's name in its class, or among the ancestors
        number, subsystem = f"{node.major}:{node.minor}", self._look.subsystem(one.thing)
        names = dict.fromkeys((path.rpartition("/")[2], node.real.rpartition("/")[2]))
        places = [f"dev/{node.type}/{number}", *(f"class/{subsystem}/{name}" for name in names)]
        things = itertools.chain(map(self._look.object, places), one.thing.line[1:])
        numbered = (found for found in things if found and self._look.number(found) == number)
        blocks = node.type == "block"  # character and block devices are numbered separately
        other = next((found for found in numbered if (self._look.subsystem(found) == "block") == blocks), None)
        if other is None:
            return False
        if _is_in(other, one.thing):
            return True

        # the devices that the object may be a part of: the matched ancestor, the nearest ancestor with a subsystem, and
        # the one with a bus address
        if one.ancestor == one.thing or not _is_in(other, one.ancestor):
            above = (thing for thing in one.thing.line[1:] if isinstance(self._look.subsystem(thing), str))
            devices = (next(above, None), place(self._look, one.thing))
            if not any(_is_in(other, device) for device in devices if device is not None):
                return False
        return by_device or self._name(other) == path

    def _name(self, thing: Object) -> str:
        """The kernel's name for an object's node, as a path."""
        name = self._look.said(thing, "DEVNAME")
        return f"{HOST_DEV}/{(name or thing.kernel).removeprefix(f'{HOST_DEV}/')}"

    def _things(self, one: Matched, pattern: str | Unfilled, name: str | None = None) -> Sequence[Object | None]:
        """The object at each path that a pattern finds; None for a path without one. ``name``: only this one's."""
        entries = self._look.entries(one.thing, pattern) if isinstance(pattern, str) and pattern else ()
        found: list[Object | None] = []
        for entry in entries:
            if name in {None, entry.rpartition("/")[2]}:
                path = entry if entry.startswith("/") else f"/sys/{one.thing.path}/{entry}"
                found.append(self._look.object(path.removeprefix("/sys/")) if path.startswith("/sys/") else None)
        return found


@dataclass(frozen=True, slots=True)
class _About:
    """The references of a path's template."""

    pattern: Template | None
    """The pattern of ``{each:...}`` or ``{entry:...}``."""
    part: bool
    """Whether it contains ``{part}``."""
    device: bool
    """Whether all fields refer to the object's ancestors, and none to the object."""
    nothing: bool
    """Whether it has no fields."""


@lru_cache(maxsize=1024)
def _about(template: Template) -> _About:
    slots = {slot.name: slot for slot in template.fields}
    patterns = [slots[name].argument for name in ("each", "entry") if name in slots]
    device = True
    for slot in template.fields:
        name, _, argument = str(slot).partition(":")
        about_above = name in {"attr", "file"} and argument.partition("/")[0] in _UP
        device &= about_above or name in _ABOVE | _NEUTRAL
    return _About(next(iter(patterns), None), "part" in slots, device, not slots)


def _is_in(thing: Object, other: Object) -> bool:
    return thing == other or thing.path.startswith(f"{other.path}/")

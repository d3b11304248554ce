"""Explanations for people: which objects match, why others don't, and the attributes of an object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpgateway.sysfs.identity import LASTING, place
from dpgateway.sysfs.matching import Match, Mismatch
from dpgateway.sysfs.nodes import ANY_TYPE, HOST_DEV, DevNode, DevTree
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.templates import Matched
from dpgateway.sysfs.tests import Test
from dpgateway.sysfs.values import NoValue


def find(look: Look, matches: Sequence[Match]) -> Iterator[tuple[int, Matched]]:
    """Each matched object once, after the number of the first of ``matches`` that takes it. Raises OSError."""
    seen: set[Object] = set()
    for number, match in enumerate(matches):
        for thing in look.objects(match.subsystem):
            if thing not in seen and isinstance(ancestor := match.look(look, thing), Object):
                seen.add(thing)
                yield number, Matched(thing, ancestor)


@dataclass(frozen=True, slots=True)
class Tried:
    """An object's result for one match: the match's number, and the ancestor or the first failed test."""

    thing: Object
    number: int
    result: Object | Mismatch


def tried(look: Look, matches: Sequence[Match], about: str | None = None) -> Iterator[Tried]:
    """Tries every object of the subsystems of ``matches`` with each match, until one takes it. Raises OSError.

    ``about``: only this object (a path below /sys or /dev, or a name) and its descendants, or else its nearest
    ancestor. An object outside these subsystems fails the test ``subsystem``.
    """
    meant: dict[Object, list[int]] = {}
    for number, match in enumerate(matches):
        for thing in look.objects(match.subsystem):
            meant.setdefault(thing, []).append(number)
    for thing in meant if about is None else _related(look, meant, about):
        if thing not in meant:
            for number, match in enumerate(matches):
                yield Tried(thing, number, Mismatch("subsystem", look.subsystem(thing), Test((match.subsystem,))))
        for number in meant.get(thing, ()):
            result = matches[number].look(look, thing)
            yield Tried(thing, number, _with_ancestor(look, thing, result))
            if isinstance(result, Object):
                break


def _with_ancestor(look: Look, thing: Object, result: Object | Mismatch) -> Object | Mismatch:
    """Adds a hint to a missing attribute that an ancestor has, because testing the wrong object is a likely mistake."""
    if isinstance(result, Object) or not isinstance(result.value, NoValue) or not result.value.absent:
        return result
    key, _, path = result.test.partition(".")
    if key not in {"attr", "attrs"}:
        return result
    has = next((one for one in thing.line if isinstance(look.value(one, path), str)), None)
    if has is None or (key == "attr" and look.subsystem(has) == look.subsystem(thing)):  # a USB device's interface
        return result
    if key == "attr":
        return replace(result, value=NoValue(f"isn't there; {has.kernel}, which it is in, has one: write attrs"))
    at = f"{result.at.kernel}, which passed the tests before it" if result.at else thing.kernel
    why = f"isn't at {at}, but at {has.kernel}: the keys in the plural are about one ancestor"
    return replace(result, value=NoValue(why), at=None)


def _related(look: Look, meant: Iterable[Object], about: str) -> list[Object]:
    named: list[Object | None]
    if about.startswith("/sys/"):
        named = [look.object(about.removeprefix("/sys/"))]
    elif about.startswith(f"{HOST_DEV}/"):
        node = DevTree(look.roots.dev).look(about.removeprefix(f"{HOST_DEV}/"), ANY_TYPE)
        number = f"{node.type}/{node.major}:{node.minor}" if isinstance(node, DevNode) else ""
        named = [look.object(f"dev/{number}")] if number else []
    else:
        named = [thing for thing in look.objects("*") if thing.kernel == about]

    # its descendants, else its nearest ancestor of a matched subsystem, else the object itself, which then fails
    things, related = dict.fromkeys(meant), dict[Object, None]()
    for one in filter(None, named):
        inside = [thing for thing in things if thing == one or thing.path.startswith(f"{one.path}/")]
        around = [thing for thing in one.line if thing in things][:1]
        related |= dict.fromkeys(inside or around or [one])
    return list(related)


_COMMON: Mapping[str, tuple[str, ...]] = {
    "vendor": ("idVendor", "vendor"),
    "product": ("idProduct", "device"),
    "serial": ("serial",),
}
"""Common names for attributes that USB and PCI name differently; other attributes keep their own names."""
_NAMES = {path: name for name, paths in _COMMON.items() for path in paths}


def attributes(look: Look, found: Matched, matches: Sequence[Match]) -> dict[str, str]:
    """The attributes to show of an object: ``address`` and ``driver``, if it has them; ``vendor``, ``product`` and
    ``serial``, if this look read them for it or for its USB device; and every attribute that ``matches`` test.
    """
    # the object and its ancestors up to its place on a bus; for a USB interface also its device, which has the ids
    on, line = place(look, found.thing), found.thing.line
    near = line[:1]
    if on is not None:
        is_interface = ":" in on.kernel and look.subsystem(on) == "usb"
        near = line[: line.index(on) + (2 if is_interface else 1)]

    # the bus address, and the nearest driver on the way to it
    known: dict[str, str] = {}
    for one in near:
        if "driver" not in known and isinstance(driver := look.value(one, "driver"), str):
            known["driver"] = driver
        if look.subsystem(one) in LASTING:
            known["address"] = one.kernel
            break

    # of several attributes with one name the first is shown: those that `matches` test come before the others
    wanted: list[tuple[Object, str]] = []
    for match in matches:
        wanted += [(found.thing, path) for path in match.attr]
        wanted += [(found.ancestor, path) for path in match.attrs]
    wanted += [(one, path) for one in near for path in _NAMES]
    for one, path in wanted:
        value = look.known(one, path)
        # PCI's device is a number; elsewhere the name is a link to the parent, and no product
        if value is not None and (path != "device" or value.startswith("0x")):
            known.setdefault(_NAMES.get(path, path), value)
    return known

"""What an object is, for people: what a look knows of it by the time that it is listed.

No file is read for this. The driver and the address are the ends of links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpgateway.sysfs.identity import place
from dpgateway.sysfs.matching import Match
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.templates import Matched

_COMMON: Mapping[str, tuple[str, ...]] = {
    "vendor": ("idVendor", "vendor"),
    "product": ("idProduct", "device"),
    "serial": ("serial",),
}
"""One word for what USB and PCI call by different ones; other attributes have their own names."""
_NAMES = {path: name for name, paths in _COMMON.items() for path in paths}


def attributes(look: Look, found: Matched, matches: Sequence[Match]) -> dict[str, str]:
    """``address`` and ``driver``, if it has them; ``vendor``, ``product`` and ``serial``, if they were read of it or of
    what it is in; and whatever else ``matches`` test.
    """
    tested = [(one, path) for match in matches for one, paths in _tested(found, match) for path in paths]
    common = [(one, path) for one in found.thing.line for path in _NAMES]
    known: dict[str, str] = {}
    for one, path in (*tested, *common):
        if (value := look.known(one, path)) is not None and (path != "device" or value.startswith("0x")):
            known.setdefault(_NAMES.get(path, path), value)
    return {**_place(look, found.thing), **known}


def _tested(found: Matched, match: Match) -> Sequence[tuple[Object, Iterable[str]]]:
    return (found.thing, match.attr), (found.ancestor, match.attrs)


def _place(look: Look, thing: Object) -> dict[str, str]:
    """Where it is plugged in, and the driver of that, or of what lies between."""
    on = place(look, thing)
    near = thing.line[: thing.line.index(on) + 1] if on else (thing,)
    drivers = [value for one in near if isinstance(value := look.value(one, "driver"), str)]
    return ({"address": on.kernel} if on else {}) | ({"driver": drivers[0]} if drivers else {})

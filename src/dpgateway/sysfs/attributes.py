"""What an object is, for people: what a look knows of it by the time that it is listed.

No file is read for this. The driver and the address are the ends of links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpgateway.sysfs.identity import LASTING, place
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
    the USB device that it is in; and whatever else ``matches`` test.
    """
    near = _near(look, found.thing)
    tested = [(one, path) for match in matches for one, paths in _tested(found, match) for path in paths]
    known = _place(look, near)
    for one, path in (*tested, *((one, path) for one in near for path in _NAMES)):
        value = look.known(one, path)
        if value is not None and (path != "device" or value.startswith("0x")):
            known.setdefault(_NAMES.get(path, path), value)
    return known


def _tested(found: Matched, match: Match) -> Sequence[tuple[Object, Iterable[str]]]:
    return (found.thing, match.attr), (found.ancestor, match.attrs)


def _near(look: Look, thing: Object) -> Sequence[Object]:
    """It, and what it is in up to its place on a bus; of an interface of a USB device also that device."""
    on, line = place(look, thing), thing.line
    if on is None:
        return line[:1]
    return line[: line.index(on) + (2 if ":" in on.kernel and look.subsystem(on) == "usb" else 1)]


def _place(look: Look, near: Sequence[Object]) -> dict[str, str]:
    """Where it is plugged in, and the driver of that, or of what lies between."""
    known = {}
    for one in near:
        if "driver" not in known and isinstance(driver := look.value(one, "driver"), str):
            known["driver"] = driver
        if look.subsystem(one) in LASTING:
            known["address"] = one.kernel
            break
    return known

"""A device as one look finds it: its properties from sysfs, before the driver adds its own."""

from __future__ import annotations

from collections.abc import Sequence

from dpgateway.sysfs.explaining import attributes
from dpgateway.sysfs.grouping import Whole
from dpgateway.sysfs.identity import LASTING, numa_of
from dpgateway.sysfs.matching import Mismatch
from dpgateway.sysfs.objects import Look
from dpgateway.sysfs.selection import Selection
from dpgateway.sysfs.templates import Matched, template
from dpgateway.sysfs.values import as_number


class FoundDevice:
    """A device during one look. Values are read lazily."""

    def __init__(self, look: Look, selection: Selection, whole: Whole) -> None:
        self.look, self._selection = look, selection
        self.id, self.parts, self.missing = whole.id, whole.parts, whole.missing
        """``missing`` says which part the device lacks, or why there is no such device."""

    @property
    def things(self) -> Sequence[Matched]:
        return [part.found for part in self.parts]

    @property
    def reason(self) -> str | None:
        """Why the device is Unhealthy; None if it is Healthy."""
        return self.missing or self.failed

    @property
    def failed(self) -> str | None:
        """Describes the first failed health test; None if all pass."""
        for path, test in self._selection.health.items() if self.parts else ():
            value = self.look.value(self.parts[0].found.thing, path)
            if not test.passes(value):
                return str(Mismatch(f"health.attr.{path}", value, test))
        return None

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA node of each object: the selection's template, or where that gives no number, the nearest ancestor
        with a ``numa_node``.
        """
        if (said := self._selection.numa) == "":
            return ()
        nodes: list[int] = []
        for one in self.things:
            text = "" if said is None else template(said, ("part",)).fill(self.look, one, {"part": one.part})
            number = as_number(text) if isinstance(text, str) and text.isdecimal() else None
            nodes += numa_of(self.look, one.thing) if number is None else [number]
        return tuple(nodes)

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the first object that this look has read so far, and the paths of all objects."""
        if not self.parts:
            return {}
        paths = " ".join(f"/sys/{one.thing.path}" for one in self.things)
        return attributes(self.look, self.things[0], self._selection.match) | {"object": paths}

    def hardware(self, *more: str) -> tuple[str, ...] | None:
        """The names of the hardware, such as ``pci 0000:3b:00.0``: the device's objects, and the driver's ``more``.

        With ``more``, a whole object off the buses in ``LASTING`` is left out: its name may be another device's after a
        restart, and the driver's names identify the hardware already.
        """
        named = [(self.look.subsystem(one.thing), one) for one in self.things]
        own = [
            f"{subsystem if isinstance(subsystem, str) else 'object'} {one.thing.kernel} {one.part}".rstrip()
            for subsystem, one in named
            if one.part or subsystem in LASTING or not more
        ]
        return (*own, *more) or None

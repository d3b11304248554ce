"""The installed drivers: entry points of the group ``dpgateway``, as plain values. Nothing here imports a driver.

``importlib.metadata`` is imported only by :func:`look`, because it takes 3 MB: a running gateway calls that in a child
process.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from dpgateway.errors import describe

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dpgateway"


@dataclass(frozen=True, slots=True)
class Point:
    """One entry point."""

    name: str
    value: str
    """``module`` or ``module:object.attribute``."""
    distribution: str = "unknown"
    version: str = "unknown"
    """The distribution's version."""

    @classmethod
    def of(cls, point: EntryPoint) -> Point:
        try:
            known = [point.dist.name, point.dist.version] if point.dist is not None else []
        except Exception:  # broken metadata of the distribution: the driver may work
            known = []
        return cls(point.name, point.value, *map(str, known))

    @property
    def module(self) -> str:
        return self.value.partition(":")[0].partition("[")[0].strip()

    def load(self) -> Any:  # noqa: ANN401  any object
        """Imports the object (packaging.python.org, entry points specification). Raises what the import raises."""
        path = self.value.partition(":")[2].partition("[")[0].strip()
        return reduce(getattr, filter(None, path.split(".")), importlib.import_module(self.module))


@dataclass(frozen=True, slots=True)
class Points:
    """All entry points of the group."""

    points: tuple[Point, ...]
    broken: tuple[str, ...] = ()
    """An error for each package whose entry points, of any group, can't be read."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({point.name for point in self.points}))


def look() -> Points:
    """Reads the entry points of the installed packages."""
    from importlib.metadata import distributions, entry_points  # noqa: PLC0415  see above

    with contextlib.suppress(Exception):  # of one broken package, which is looked for below
        return Points(tuple(map(Point.of, entry_points(group=GROUP))))
    points: dict[Point, None] = {}
    broken: list[str] = []
    for distribution in distributions():
        try:
            of_ours = tuple(map(Point.of, distribution.entry_points.select(group=GROUP)))
        except Exception as error:
            where = distribution.locate_file("")
            broken.append(f"a package at {where} has broken entry points: {describe(error)}")
            continue
        points |= dict.fromkeys(of_ours)
    return Points(tuple(points), tuple(broken))

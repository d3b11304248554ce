"""The installed importers: entry points of the group ``dpgateway.importers``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from dpgateway.errors import GatewayError, describe
from dpgateway.importing.imported import Imported
from dpgateway.importing.source import Source

GROUP = "dpgateway.importers"


@dataclass(frozen=True, slots=True)
class Importer:
    """An importer, named after the plugin whose configuration it reads."""

    name: str
    point: EntryPoint

    @property
    def distribution(self) -> str:
        return self.point.dist.name if self.point.dist is not None else "unknown"

    def load(self) -> Callable[[Source], Imported]:
        """Imports its package, and returns the function. Raises GatewayError."""
        try:
            importer: Callable[[Source], Imported] = self.point.load()
        except Exception as error:
            raise GatewayError(f"{self.name} of {self.distribution} can't be loaded: {describe(error)}") from error
        return importer


def installed() -> dict[str, Importer]:
    """The installed importers by name. Loads none."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {point.name: Importer(point.name, point) for point in points}

"""A driver whose devices flip on command and which reports the time, to measure a health flip.

``commands.py`` describes commands and answers. The driver takes the time just before it calls ``changed()``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.commands import follow
from dpgateway import Allocation, Context, Device, Health, hookimpl

ENTRY_POINT = "flipping"


@dataclass(frozen=True, slots=True)
class FlippingOptions:
    count: int = field(default=1, metadata={"help": "how many devices there are"})
    commands: str = field(default="", metadata={"help": "the named pipe of commands"})
    stamps: str = field(default="", metadata={"help": "the named pipe of answers"})
    naive: bool = field(default=False, metadata={"help": "whether each look makes new values of all devices"})


class FlippingDriver:
    Options = FlippingOptions

    def __init__(self, options: FlippingOptions, context: Context) -> None:
        self._changed = context.changed
        self._naive = options.naive
        self._devices = [Device(f"device-{number}") for number in range(options.count)]
        follow(Path(options.commands), Path(options.stamps), self._flip)

    def _flip(self, index: int) -> int:
        was = self._devices[index]
        health = Health.unhealthy("flipped") if was.health.ok else Health.healthy()
        self._devices[index] = Device(was.id, health)
        stamp = time.monotonic_ns()
        self._changed()
        return stamp

    def devices(self) -> Iterable[Device]:
        return [Device(one.id, one.health) for one in self._devices] if self._naive else list(self._devices)

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        return Allocation()


@hookimpl
def dpgateway_driver() -> type[FlippingDriver]:
    return FlippingDriver


def install(folder: Path) -> None:
    """Writes a package's metadata to ``folder``, so that entry points find the driver as if it were installed."""
    info = folder / "dpgateway_flipping-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dpgateway-flipping\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[dpgateway]\n{ENTRY_POINT} = {__name__}\n")

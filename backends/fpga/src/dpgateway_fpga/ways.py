"""The options of each programmer except ``command``, which has its own module."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from dpgateway import refuse
from dpgateway_fpga.boards import Bitstream

VERIFIED = (
    "dfl, simulated: a board says which image it runs; fpga-manager, overlay: only that it runs one; "
    "command: as `read` says"
)
"""How strongly each programmer verifies a board."""
DISCOVERS = ("dfl", "fpga-manager", "overlay")
"""The programmers whose boards can be discovered in /sys."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """The behaviour of the simulated programmer."""

    state_dir: Path = field(
        # as on a real board, a loaded bitstream outlives the gateway, but not a reboot, which empties /run
        default=Path("/run/dpgateway/fpga-simulated"),
        metadata={"help": "where the simulated programmer keeps what each board runs"},
    )
    duration: timedelta = field(default=timedelta(seconds=1), metadata={"help": "how long programming takes"})
    fail_first: int = field(default=0, metadata={"help": "this many attempts fail, on each board, before one succeeds"})

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if not self.state_dir.is_absolute():
            wrong.append(f"state_dir: expected an absolute path, found {str(self.state_dir)!r}")
        if self.duration < timedelta():
            wrong.append(f"duration: expected 0s or more, found {self.duration.total_seconds():g}s")
        if self.fail_first < 0:
            wrong.append(f"fail_first: expected 0 or more, found {self.fail_first}")
        refuse(wrong)


@dataclass(frozen=True, slots=True)
class FpgaManager:
    """The kernel's fpga_manager loads an image from a file whose name is written to it."""

    flags: int = field(default=0, metadata={"help": "written to `flags` before each load; 1: partial reconfiguration"})
    firmware: Path = field(
        default=Path("/lib/firmware"),
        metadata={"help": "where the host's /lib/firmware is seen; images are put in its directory dpgateway"},
    )

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if self.flags < 0:
            wrong.append(f"flags: expected 0 or more, found {self.flags}")
        if not self.firmware.is_absolute():
            wrong.append(f"firmware: expected an absolute path, found {str(self.firmware)!r}")
        refuse(wrong)


@dataclass(frozen=True, slots=True)
class Overlay:
    """The kernel applies a device-tree overlay, and loads the image that the overlay names."""

    file: Bitstream | None = field(
        default=None, metadata={"help": "the compiled overlay; its firmware-name is replaced by the image's"}
    )
    configfs: Path = field(
        default=Path("/sys/kernel/config/device-tree/overlays"), metadata={"help": "where the kernel has its overlays"}
    )
    firmware: Path = field(
        default=Path("/lib/firmware"),
        metadata={"help": "where the host's /lib/firmware is seen; images are put in its directory dpgateway"},
    )

    def __post_init__(self) -> None:
        refuse(
            f"{key}: expected an absolute path, found {str(path)!r}"
            for key, path in (("configfs", self.configfs), ("firmware", self.firmware))
            if not path.is_absolute()
        )

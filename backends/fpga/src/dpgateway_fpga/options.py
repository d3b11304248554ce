"""The driver's options: the boards, what is programmed onto them, and how."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from dpgateway import Device, DeviceNode, refuse
from dpgateway.sysfs import HOST_DEV, Roots
from dpgateway_fpga.tools import Command

# A board's id is the name of its state file, so the id can't contain a slash or begin with a dot.
_BOARD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MIB = 1024 * 1024
HARDWARE = "fpga"
"""Before a board's id, what other resources of its pool know the board by."""


VERIFIED = (
    "dfl, simulated: a board says which image it runs; fpga-manager, overlay: only that it runs one; "
    "command: as `read` says"
)
"""How strongly each programmer verifies a board."""
DISCOVERS = ("dfl", "fpga-manager", "overlay")
"""The programmers whose boards can be found in /sys."""


@dataclass(frozen=True, slots=True)
class Board:
    """One board of the pool."""

    id: str = field(metadata={"help": "names the board for ever, for example its serial number or bus address"})
    nodes: tuple[str, ...] = field(
        default=(), metadata={"help": "the device nodes that a container gets with the board"}
    )
    numa: int | None = field(default=None, metadata={"help": "the NUMA node that the board is near"})
    address: str | None = field(
        default=None,
        metadata={"help": "the board's name on its bus in /sys, 0000:3b:00.0 or f8007000.devcfg; else the id"},
    )
    port: int = field(default=0, metadata={"help": "with dfl: which port of the board"})

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if not _BOARD_ID.fullmatch(self.id):
            yield f"id: expected at most 63 letters, digits and any of ._:- after the first, found {self.id!r}"
        else:
            yield from _wrong("id", lambda: Device(self.id))
        if self.numa is not None and self.numa < 0:
            yield f"numa: expected 0 or more, found {self.numa}"
        if self.port < 0:
            yield f"port: expected 0 or more, found {self.port}"
        yield from _wrong("nodes", lambda: [DeviceNode(node) for node in self.nodes])

    @property
    def place(self) -> str:
        return self.address or self.id

    def device(self) -> Device:
        return Device(
            self.id, numa_nodes=() if self.numa is None else (self.numa,), hardware=(f"{HARDWARE} {self.id}",)
        )


@dataclass(frozen=True, slots=True)
class Bitstream:
    """The file that is programmed onto the boards."""

    path: Path = field(
        metadata={"help": "a file of root, or of the gateway's user, that nobody else can write or replace"}
    )
    id: str = field(metadata={"help": "the bitstream's name for containers, as FPGA_BITSTREAM"})
    sha256: str | None = field(default=None, metadata={"help": "only a file with this digest is programmed"})
    max_mib: int = field(default=256, metadata={"help": "a larger file is refused, because it is read into memory"})

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if not self.path.is_absolute():
            yield f"path: expected an absolute path, found {str(self.path)!r}"
        if not self.id:
            yield "id: expected a non-empty string"
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            yield f"sha256: expected 64 lower-case hexadecimal digits, found {self.sha256!r}"
        if self.max_mib < 1:
            yield f"max_mib: expected 1 or more, found {self.max_mib}"

    @property
    def max_bytes(self) -> int:
        return self.max_mib * _MIB


@dataclass(frozen=True, slots=True)
class Simulated:
    """How the simulated programmer behaves."""

    state_dir: Path = field(
        # As on a board, the loaded bitstream outlives the gateway, but not a reboot: /run is emptied at boot.
        default=Path("/run/dpgateway/fpga-simulated"),
        metadata={"help": "where the simulated programmer keeps what each board runs"},
    )
    duration: timedelta = field(default=timedelta(seconds=1), metadata={"help": "how long programming takes"})
    fail_first: int = field(default=0, metadata={"help": "this many attempts fail, on each board, before one succeeds"})

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if not self.state_dir.is_absolute():
            yield f"state_dir: expected an absolute path, found {str(self.state_dir)!r}"
        if self.duration < timedelta():
            yield f"duration: expected 0s or more, found {self.duration.total_seconds():g}s"
        if self.fail_first < 0:
            yield f"fail_first: expected 0 or more, found {self.fail_first}"


@dataclass(frozen=True, slots=True)
class FpgaManager:
    """How the kernel's fpga_manager is told to load an image from a file."""

    flags: int = field(default=0, metadata={"help": "written to `flags` before each load; 1: partial reconfiguration"})
    firmware: Path = field(
        default=Path("/lib/firmware"),
        metadata={"help": "where the host's /lib/firmware is seen; images are put in its directory dpgateway"},
    )

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.flags < 0:
            yield f"flags: expected 0 or more, found {self.flags}"
        if not self.firmware.is_absolute():
            yield f"firmware: expected an absolute path, found {str(self.firmware)!r}"


@dataclass(frozen=True, slots=True)
class Overlay:
    """How the kernel is told to apply an overlay for the device tree, which has it load the image."""

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


@dataclass(frozen=True, slots=True)
class FpgaOptions:
    """One function, which is a bitstream, and the boards that can have it."""

    bitstream: Bitstream = field(metadata={"help": "what the boards are programmed with before a container starts"})
    boards: tuple[Board, ...] = field(
        default=(), metadata={"help": "the boards; another resource may name them, too, if both are in one pool"}
    )
    discover: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "with dfl, fpga-manager, overlay: also the boards in /sys whose addresses are these; globs: *"
        },
    )
    fallback: Bitstream | None = field(
        default=None, metadata={"help": "programmed once after the bitstream failed; then others can be had"}
    )
    blank: Bitstream | None = field(default=None, metadata={"help": "programmed when a board is free again"})
    prefetch: bool = field(
        default=False, metadata={"help": "begin to program when a container gets the board, before it is to start"}
    )
    wait: timedelta = field(
        default=timedelta(seconds=20),
        metadata={"help": "a container's start that takes longer fails, says how far it is, and the next one joins"},
    )
    state_dir: Path = field(
        default=Path("/var/lib/dpgateway/fpga"),
        metadata={"help": "where it is written down what each board runs; the same for all resources of a board"},
    )
    programmer: Literal["command", "dfl", "fpga-manager", "overlay", "simulated"] = field(
        default="simulated",
        metadata={"help": f"what programs the boards; {VERIFIED}"},
    )
    command: Command = field(default_factory=Command, metadata={"help": "options of the programmer command"})
    fpga_manager: FpgaManager = field(
        default_factory=FpgaManager, metadata={"help": "options of the programmer fpga-manager"}
    )
    overlay: Overlay = field(default_factory=Overlay, metadata={"help": "options of the programmer overlay"})
    simulated: Simulated = field(default_factory=Simulated, metadata={"help": "options of the simulated programmer"})
    patience: timedelta = field(
        default=timedelta(minutes=5),
        metadata={
            "help": "a process that programs for longer is left behind, and its board is out of use until it ends"
        },
    )
    sysfs: str = field(default="/sys", metadata={"help": "where the host's /sys is seen from the gateway's container"})
    dev: str = field(default=HOST_DEV, metadata={"help": "where the host's /dev is seen from the gateway's container"})
    retry_first: timedelta = field(
        default=timedelta(seconds=1), metadata={"help": "the pause after a board couldn't be programmed, then doubling"}
    )
    retry_limit: timedelta = field(
        default=timedelta(seconds=60), metadata={"help": "the longest pause before a board is tried again"}
    )

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        yield from self._wrong_boards()
        yield from self._wrong_programmer()
        if not timedelta() < self.retry_first <= self.retry_limit:
            yield "retry_first: expected more than 0s, and no more than retry_limit"
        for key, duration in (("wait", self.wait), ("patience", self.patience)):
            if duration <= timedelta():
                yield f"{key}: expected more than 0s, found {duration.total_seconds():g}s"
        for key, path in (("sysfs", self.sysfs), ("dev", self.dev), ("state_dir", str(self.state_dir))):
            if not path.startswith("/"):
                yield f"{key}: expected an absolute path, found {path!r}"

    def _wrong_programmer(self) -> Iterator[str]:
        if self.discover and self.programmer not in DISCOVERS:
            yield f"discover: expected it with the programmer {' or '.join(DISCOVERS)}, found {self.programmer}"
        if self.programmer == "command" and not self.command.tool.argv:
            yield "command: expected preset, or argv, because the programmer is command"
        if self.programmer == "overlay" and self.overlay.file is None:
            yield "overlay: expected file, because the programmer is overlay"

    def _wrong_boards(self) -> Iterator[str]:
        for what, names in (
            ("id", [board.id for board in self.boards]),
            ("place", [f"{board.place} port {board.port}" for board in self.boards]),
            ("node", [node for board in self.boards for node in board.nodes]),
        ):
            if twice := _repeated(names):
                yield f"boards: expected each {what} once, found {', '.join(twice)} twice"
                return

    @property
    def roots(self) -> Roots:
        return Roots(sysfs=self.sysfs, dev=self.dev)

    def claims(self) -> list[str]:
        """What only one resource may have, or those of one pool: else a board is changed under a running container."""
        nodes = (node for board in self.boards for node in board.nodes)
        found = [f"what is found in {self.sysfs} for {self.programmer}"] if self.discover else []
        return [*(f"board {board.id}" for board in self.boards), *(f"node {node}" for node in nodes), *found]

    def warnings(self, others: Mapping[str, FpgaOptions]) -> Iterator[str]:
        ids = {board.id for board in self.boards}
        for name, other in others.items():
            if other.state_dir != self.state_dir and ids & {board.id for board in other.boards}:
                yield (
                    f"state_dir: found {self.state_dir}, expected {other.state_dir} as {name} has it, because what is "
                    "programmed onto a board of both is written down, and locked, there"
                )


def _wrong(key: str, make: Callable[[], object]) -> Iterator[str]:
    try:
        make()
    except ValueError as error:
        yield f"{key}: {error}"


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]

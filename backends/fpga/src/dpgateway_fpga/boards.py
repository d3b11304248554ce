"""Boards and bitstreams in the configuration, and boards located in sysfs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway import Device, DeviceNode, refuse

# A board's id is the name of its state file, so the id can't contain a slash or begin with a dot.
_BOARD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MIB = 1024 * 1024
HARDWARE = "fpga"
"""Precedes a board's key in the name of its hardware, which the pool's other resources compare."""


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
        wrong: list[str] = []
        if not _BOARD_ID.fullmatch(self.id):
            expected = "expected at most 63 letters, digits and any of ._:- after the first"
            wrong.append(f"id: {expected}, found {self.id!r}")
        else:
            try:
                Device(self.id)
            except ValueError as error:
                wrong.append(f"id: {error}")
        if self.numa is not None and self.numa < 0:
            wrong.append(f"numa: expected 0 or more, found {self.numa}")
        if self.address is not None and (not self.address or "/" in self.address):
            wrong.append(f"address: expected a name on a bus, without a slash, found {self.address!r}")
        if self.port < 0:
            wrong.append(f"port: expected 0 or more, found {self.port}")
        try:
            for node in self.nodes:
                DeviceNode(node)
        except ValueError as error:
            wrong.append(f"nodes: {error}")
        refuse(wrong)

    @property
    def place(self) -> str:
        return self.address or self.id

    @property
    def key(self) -> str:
        """The name of the hardware, of its lock and of its journal entry: two ids of one place are one board."""
        return self._key(self.place)

    @property
    def keys(self) -> tuple[str, ...]:
        """Its key, and the key used by writers that don't look at /sys: earlier releases, and tools."""
        return tuple(dict.fromkeys((self.key, self._key(self.place))))

    @property
    def life(self) -> int | None:
        """``None`` for an unlocated board; see Located."""
        return None

    @property
    def above(self) -> tuple[str, ...]:
        """Empty for an unlocated board; see Located."""
        return ()

    def device(self) -> Device:
        numa_nodes = () if self.numa is None else (self.numa,)
        return Device(self.id, numa_nodes=numa_nodes, hardware=tuple(f"{HARDWARE} {key}" for key in self.keys))

    def _key(self, name: str) -> str:
        return f"{name}-p{self.port}" if self.port else name


@dataclass(frozen=True, slots=True)
class Located(Board):
    """A board present in /sys. Boards programmed by one device are one board, even under different addresses."""

    at: str = field(kw_only=True)
    """The path in /sys of the device whose ``fpga_manager`` (with dfl, ``fpga_region``) programs the board."""
    life: int = field(kw_only=True)
    """The inode of the programming object in /sys, which is a new one each time the kernel creates the object
    (fs/kernfs/dir.c): a replugged board, or a reloaded driver, has another life."""

    @property
    def key(self) -> str:
        return self._key(self.at.rpartition("/")[2])

    @property
    def above(self) -> tuple[str, ...]:
        """The keys of the same hardware under other addresses, as a writer without a look at /sys would form them."""
        return tuple(self._key(name) for name in self.at.split("/")[:-1])


@dataclass(frozen=True, slots=True)
class Plugged(Board):
    """A board present on USB, known by its serial number."""

    life: int = field(kw_only=True)
    """The inode of the USB device in /sys: see Located. Without power a board has no image."""


@dataclass(frozen=True, slots=True)
class Bitstream:
    """A bitstream file, and its name for containers."""

    path: Path = field(metadata={"help": "a file that only root or the gateway's user owns and can write or replace"})
    id: str = field(metadata={"help": "the bitstream's name for containers, as FPGA_BITSTREAM"})
    sha256: str | None = field(default=None, metadata={"help": "only a file with this digest is programmed"})
    max_mib: int = field(default=256, metadata={"help": "a larger file is refused, because it is read into memory"})

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if not self.path.is_absolute():
            wrong.append(f"path: expected an absolute path, found {str(self.path)!r}")
        if not self.id:
            wrong.append("id: expected a non-empty string")
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            wrong.append(f"sha256: expected 64 lower-case hexadecimal digits, found {self.sha256!r}")
        if self.max_mib < 1:
            wrong.append(f"max_mib: expected 1 or more, found {self.max_mib}")
        refuse(wrong)

    @property
    def max_bytes(self) -> int:
        return self.max_mib * _MIB

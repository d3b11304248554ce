"""The driver's options: boards, bitstreams, and the way to program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from dpgateway import refuse
from dpgateway.sysfs import HOST_DEV, Roots
from dpgateway_fpga.boards import Bitstream, Board
from dpgateway_fpga.tools import Command
from dpgateway_fpga.ways import DISCOVERS, VERIFIED, FpgaManager, Overlay, Simulated


@dataclass(frozen=True, slots=True)
class FpgaOptions:
    """One function (a bitstream), and the boards that can run it."""

    bitstream: Bitstream = field(metadata={"help": "the boards' image, programmed before a container starts"})
    functions: tuple[Bitstream, ...] = field(
        default=(), metadata={"help": "further bitstreams, which function may choose by their ids"}
    )
    function: str | None = field(
        default=None,
        metadata={"help": "the id of the bitstream to program; else that of bitstream", "per_claim": True},
    )
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
        wrong = list(self._wrong_functions())

        # one error is enough: two entries for one board often share its nodes, too
        for what, names in (
            ("id", [board.id for board in self.boards]),
            ("place", [board.key for board in self.boards]),
            ("node", [node for board in self.boards for node in board.nodes]),
        ):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                wrong.append(f"boards: expected each {what} once, found {', '.join(twice)} twice")
                break

        # the keys that depend on the programmer
        if self.discover and self.programmer not in DISCOVERS:
            found = f"found {self.programmer}"
            wrong.append(f"discover: expected it with the programmer {' or '.join(DISCOVERS)}, {found}")
        if self.programmer == "command" and not self.command.tool.argv:
            wrong.append("command: expected preset, or argv, because the programmer is command")
        if self.programmer == "overlay" and self.overlay.file is None:
            wrong.append("overlay: expected file, because the programmer is overlay")

        if not timedelta() < self.retry_first <= self.retry_limit:
            wrong.append("retry_first: expected more than 0s, and no more than retry_limit")
        for key, duration in (("wait", self.wait), ("patience", self.patience)):
            if duration <= timedelta():
                wrong.append(f"{key}: expected more than 0s, found {duration.total_seconds():g}s")
        for key, path in (("sysfs", self.sysfs), ("dev", self.dev), ("state_dir", str(self.state_dir))):
            if not path.startswith("/"):
                wrong.append(f"{key}: expected an absolute path, found {path!r}")
        refuse(wrong)

    @property
    def chosen(self) -> Bitstream:
        """The bitstream that is programmed: another one for each claim that chooses a function."""
        return next((one for one in self.functions if one.id == self.function), self.bitstream)

    @property
    def by_serial(self) -> bool:
        """Whether a board's address is the serial number of its USB device."""
        return self.programmer == "command" and self.command.preset == "openFPGALoader"

    @property
    def placed(self) -> bool:
        """Whether each look finds the boards in /sys."""
        return self.programmer in DISCOVERS or self.by_serial

    def _wrong_functions(self) -> Iterator[str]:
        ids = [one.id for one in (self.bitstream, *self.functions)]
        if twice := [id_ for id_, count in Counter(ids).items() if count > 1]:
            yield f"functions: expected each id once, also that of bitstream, found {', '.join(twice)} twice"
        if self.function is not None and self.function not in ids:
            yield f"function: expected one of {', '.join(ids)}, found {self.function!r}"
        if self.functions and self.programmer == "overlay":
            yield "functions: expected none with the programmer overlay, because its file describes one function"

    @property
    def roots(self) -> Roots:
        return Roots(sysfs=self.sysfs, dev=self.dev)

    def claims(self) -> list[str]:
        """Names that only one resource, or the resources of one pool, may claim: a board claimed twice would be changed
        under a running container.
        """
        nodes = (node for board in self.boards for node in board.nodes)
        names = dict.fromkeys(name for board in self.boards for name in (board.id, board.key))
        found = [f"the boards found in {self.sysfs} for {self.programmer}"] if self.discover else []
        ports = [f"{glob}-p*" for glob in self.discover if self.programmer == "dfl" and not glob.endswith("*")]
        places = (*names, *self.discover, *ports)
        return [*(f"board {name}" for name in places), *(f"node {node}" for node in nodes), *found]

    def warnings(self, others: Mapping[str, FpgaOptions]) -> Iterator[str]:
        if self.programmer == "simulated" and any(board.nodes or board.address for board in self.boards):
            yield "programmer: found simulated, which programs no board, because its boards are files"
        further = (("fallback", self.fallback), ("blank", self.blank), ("overlay", self.overlay.file))
        functions = (("functions", one) for one in self.functions)
        for key, one in (("bitstream", self.bitstream), *functions, *further):
            if one is None:
                continue
            try:
                one.path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                yield f"{key}: there is no {one.path} on this node"
            except OSError:  # it is hidden from this user
                pass
        unused = (
            ("command", self.command, Command()),
            ("fpga_manager", self.fpga_manager, FpgaManager()),
            ("overlay", self.overlay, Overlay()),
        )
        for key, options, default in unused:
            if options != default and key != self.programmer.replace("-", "_"):
                yield f"{key}: of no effect, because the programmer is {self.programmer}"
        keys = {board.key for board in self.boards}
        for name, other in others.items():
            if other.state_dir != self.state_dir and keys & {board.key for board in other.boards}:
                yield (
                    f"state_dir: found {self.state_dir}, expected {other.state_dir} as {name} has it, because a "
                    "board of both has its lock, and the entry of its image, there"
                )

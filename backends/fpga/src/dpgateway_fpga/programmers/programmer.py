"""What every way to program boards can do, says of itself, and raises; and how a board is verified."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from dpgateway import DriverError
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.boards import Board
from dpgateway_fpga.reader import Hung, PatientReader

Progress = Callable[[str], None]
"""Gets each step in a few words ("write init"), on the thread that called ``program``."""


Locks = Collection[int]
"""Descriptors with a flock(2) of a board under each of its names."""


class Verification(StrEnum):
    """How strongly a programmer can verify what a board runs."""

    IDENTITY = "identity"
    """The board says which image it runs."""
    STATE = "state"
    """The board says only that it runs something without a fault; which image, the journal has to remember."""
    NONE = "none"
    """The board says nothing; that the attempt didn't fail has to be enough."""


@dataclass(frozen=True, slots=True)
class BoardState:
    """What a board says of itself now."""

    state: str
    """In the words of the kernel or of the tool, for people: ``operating``, ``write init error``; ``absent``: there is
    no such board now, and what it ran is gone with it."""
    identity: str | None = None
    """Of the image that the board runs; ``None``: unknown. Only with ``Verification.IDENTITY``."""
    operating: bool = False
    """Whether it runs something, as far as it says."""
    fault: str | None = None
    """Why no container may have the board now, with any image; it lasts until a repair, or passes."""


class Failed(DriverError):
    """A board couldn't be programmed, or isn't what it should be."""

    def __init__(self, why: str, *, again: bool = False, touched: bool = True) -> None:
        """``again``: whether the same attempt may succeed later, because nothing was touched, or what failed passes.
        ``touched``: whether the board may have changed.
        """
        super().__init__(why)
        self.again, self.touched = again, touched


class Programmer(Protocol):
    """One way to program boards. Calls for different boards may run at the same time; of one board only ``read`` may,
    while ``program`` runs.
    """

    @property
    def verification(self) -> Verification: ...

    def expected(self, board: Board, image: Image) -> str:
        """The identity that the board says once it runs ``image``. Touches nothing. Raises DriverError: the image isn't
        one for this board.
        """

    def read(self, board: Board) -> BoardState:
        """The board's own state. A fault of the board is its ``fault``, no error."""

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        """Blocks until the attempt is over. Raises Failed, or another DriverError or OSError (then not ``again``).

        A process that does the work keeps ``locks`` open until it ends, so that they outlive this process if that one
        hangs in the kernel.
        """

    def reset(self, board: Board) -> None:
        """Brings what the board runs into the state after a load, or takes it away. Raises DriverError, OSError; Failed
        also where there is no such thing.
        """


def said(reader: PatientReader[BoardState]) -> BoardState:
    """What the board says. That it doesn't answer is its fault."""
    try:
        return reader.read()
    except Hung as error:
        return BoardState("unknown", fault=str(error))


def verify(programmer: Programmer, board: Board, image: Image) -> BoardState:
    """What the board says after it was programmed. Raises Failed if that isn't what it says when it runs ``image``."""
    expected, found = programmer.expected(board, image), programmer.read(board)
    if found.fault is not None:
        raise Failed(found.fault, again=found.state == "absent")
    if programmer.verification is Verification.IDENTITY and found.identity != expected:
        raise Failed(f"expected the board to run {expected} now, found {found.identity or 'an unknown state'}")
    if programmer.verification is Verification.STATE and not found.operating:
        raise Failed(f"expected the board to be operating now, found the state {found.state!r}")
    return found

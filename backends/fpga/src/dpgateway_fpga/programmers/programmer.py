"""The protocol of all programmers, with its states and errors, and the verification of a programmed board."""

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
"""Receives each step in a few words ("write init"), on the thread that called ``program``."""


Locks = Collection[int]
"""Descriptors that hold a board's flock(2) under each of its names."""


class Verification(StrEnum):
    """The strength of a programmer's verification."""

    IDENTITY = "identity"
    """The board identifies its image."""
    STATE = "state"
    """The board reports only that it runs without a fault; only the journal knows the image."""
    NONE = "none"
    """The board reports nothing; the attempt's success has to suffice."""


@dataclass(frozen=True, slots=True)
class BoardState:
    """A board's own report of its state."""

    state: str
    """The kernel's or tool's word, for people: ``operating``, ``write init error``; ``absent``: there is no such board
    now, and its image is gone with it."""
    identity: str | None = None
    """The identity of the board's image; None: unknown. Only with ``Verification.IDENTITY``."""
    operating: bool = False
    """Whether the board reports that it runs an image."""
    fault: str | None = None
    """Why no container may have the board, with any image, until a repair or until it passes."""


class Failed(DriverError):
    """Programming or verifying a board failed."""

    def __init__(self, why: str, *, again: bool = False, touched: bool = True) -> None:
        """``again``: whether the same attempt may succeed later, because nothing was touched or the cause is temporary.
        ``touched``: whether the board may have changed.
        """
        super().__init__(why)
        self.again, self.touched = again, touched


class Programmer(Protocol):
    """One way to program boards. Calls for different boards may run concurrently; for one board only ``read`` may run
    during ``program``.
    """

    @property
    def verification(self) -> Verification: ...

    def expected(self, board: Board, image: Image) -> str:
        """The identity that the board will report with ``image``. Touches nothing. Raises DriverError if the image
        isn't for this board.
        """

    def read(self, board: Board) -> BoardState:
        """The board's own state. A fault of the board is returned as ``fault``, not raised."""

    def program(self, board: Board, image: Image, progress: Progress, locks: Locks = ()) -> None:
        """Blocks until the attempt is over. Raises Failed, or another DriverError or OSError (then not ``again``).

        A child process that does the work inherits ``locks``, so that a child hanging in the kernel holds them even
        after this process ended.
        """

    def reset(self, board: Board) -> None:
        """Resets the board's image to its state after a load, or removes it. Raises DriverError, OSError; Failed also
        if the programmer has no reset.
        """


def said(reader: PatientReader[BoardState]) -> BoardState:
    """The board's state; a timeout is reported as a fault of the board."""
    try:
        return reader.read()
    except Hung as error:
        return BoardState("unknown", fault=str(error))


def verify(programmer: Programmer, board: Board, image: Image) -> BoardState:
    """The board's state after programming. Raises Failed if it isn't the state expected with ``image``."""
    expected, found = programmer.expected(board, image), programmer.read(board)
    if found.fault is not None:
        raise Failed(found.fault, again=found.state == "absent")
    if programmer.verification is Verification.IDENTITY and found.identity != expected:
        raise Failed(f"expected the board to run {expected} now, found {found.identity or 'an unknown state'}")
    if programmer.verification is Verification.STATE and not found.operating:
        raise Failed(f"expected the board to be operating now, found the state {found.state!r}")
    return found

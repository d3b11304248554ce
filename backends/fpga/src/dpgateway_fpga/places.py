"""Where a board is in sysfs: found by the name that its bus gives it, never by a number of the moment (fpga0)."""

from __future__ import annotations

from dpgateway import DriverError
from dpgateway.sysfs import Look, Object
from dpgateway_fpga.options import Board


def manager(look: Look, board: Board) -> Object:
    """The one fpga_manager of a board. Raises DriverError."""
    return only(board, "fpga_manager", [thing for thing in look.objects("fpga_manager") if _is_at(thing, board)])


def only(board: Board, what: str, found: list[Object]) -> Object:
    if len(found) != 1:
        names = ", ".join(f"/sys/{thing.path}" for thing in found) or "none"
        raise DriverError(f"expected one {what} at {board.place} in /sys, found {names}")
    return found[0]


def _is_at(thing: Object, board: Board) -> bool:
    return any(above.kernel == board.place for above in thing.line)

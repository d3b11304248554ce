"""Where a board is in sysfs: found by the name that its bus gives it, never by a number of the moment (fpga0)."""

from __future__ import annotations

from dataclasses import dataclass

from dpgateway import DeviceUnavailable, DriverError
from dpgateway.sysfs import Look, Object
from dpgateway_fpga.boards import Board


@dataclass(frozen=True, slots=True)
class Dfl:
    """A port of a card with DFL drivers, and the management engine that programs it."""

    engine: Object
    manager: Object
    port: Object


def manager(look: Look, board: Board) -> Object:
    """The one fpga_manager of a board. Raises DeviceUnavailable if there is none; DriverError, OSError."""
    found = [thing for thing in look.objects("fpga_manager") if is_at(thing, board)]
    # A card may have a manager of its own, and others on devices that it has inside.
    own = [thing for thing in found if [above.kernel for above in thing.line[1:3]] == ["fpga_manager", board.place]]
    return _only(board, "fpga_manager", own or found)


def dfl(look: Look, board: Board) -> Dfl:
    """Raises DeviceUnavailable if there is none; DriverError, OSError."""
    regions = [thing for thing in look.objects("fpga_region") if is_at(thing, board)]
    engine = _only(board, "dfl-fme", _within(look, regions, "dfl-fme.*"))
    ports = [port for port in _within(look, regions, "dfl-port.*") if look.value(port, "id") == str(board.port)]
    managers = [thing for thing in look.objects("fpga_manager") if engine in thing.line]
    return Dfl(engine, _only(board, "fpga_manager", managers), _only(board, f"dfl-port with id {board.port}", ports))


def _within(look: Look, regions: list[Object], names: str) -> list[Object]:
    return [Object(f"{region.path}/{name}") for region in regions for name in look.entries(region, names)]


def _only(board: Board, what: str, found: list[Object]) -> Object:
    if not found:
        raise DeviceUnavailable(f"expected one {what} at {board.place} in /sys, found none")
    if len(found) > 1:
        names = ", ".join(f"/sys/{thing.path}" for thing in found)
        raise DriverError(f"expected one {what} at {board.place} in /sys, found {names}")
    return found[0]


def is_at(thing: Object, board: Board) -> bool:
    """Whether it is on the device that has the board's name, or on one inside that."""
    return any(above.kernel == board.place for above in thing.line)

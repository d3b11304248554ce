"""Where a board is in sysfs: found by the name that its bus gives it, never by a number of the moment (fpga0)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dpgateway import DeviceUnavailable, DriverError
from dpgateway.sysfs import Look, Object
from dpgateway_fpga.boards import Board, Located

_CLASSES = frozenset({"fpga_manager", "fpga_region"})


@dataclass(frozen=True, slots=True)
class Dfl:
    """A port of a card with DFL drivers, and the management engine that programs it."""

    engine: Object
    manager: Object
    port: Object


def manager(look: Look, board: Board, managers: Sequence[Object] = ()) -> Object:
    """The one fpga_manager of a board. Raises DeviceUnavailable if there is none; DriverError, OSError.

    ``managers``: all of them, if they are known.
    """
    found = [thing for thing in managers or look.objects("fpga_manager") if is_at(thing, board)]
    # A card may have a manager of its own, and others on devices that it has inside.
    own = [thing for thing in found if _device(thing).kernel == board.place]
    return _same(board, _only(board, "fpga_manager", own or found))


def dfl(look: Look, board: Board) -> Dfl:
    """Raises DeviceUnavailable if there is none; DriverError, OSError."""
    engine = _same(board, _only(board, "dfl-fme", _in_regions(look, board, "dfl-fme.*")))
    ports = [port for port in _in_regions(look, board, "dfl-port.*") if look.value(port, "id") == str(board.port)]
    managers = [thing for thing in look.objects("fpga_manager") if engine in thing.line]
    return Dfl(engine, _only(board, "fpga_manager", managers), _only(board, f"dfl-port with id {board.port}", ports))


def located(look: Look, board: Board, programmer: str, managers: Sequence[Object]) -> Board:
    """The board with the device that programs it now; unchanged if that is absent or unknown. Touches no register."""
    try:
        if programmer == "dfl":
            thing = _only(board, "dfl-fme", _in_regions(look, board, "dfl-fme.*"))
        else:
            thing = manager(look, board, managers)
        life = os.stat(f"{look.roots.sysfs}/{thing.path}").st_ino  # noqa: PTH116  as in dpgateway.sysfs
        return Located(**asdict(board), at=programmed(thing, managers).path, life=life)
    except (DriverError, OSError):  # its state says why
        return board


def programmed(thing: Object, managers: Sequence[Object]) -> Object:
    """The device that one of the managers, or a part of a region, programs; the manager itself if its device has
    several.
    """
    found = _device(thing)
    of_it = [one for one in managers if _device(one) == found]
    return thing if thing in of_it and len(of_it) > 1 else found


def _device(thing: Object) -> Object:
    """The kernel puts a directory with the class's name between them (drivers/base/core.c, get_device_parent)."""
    line = thing.line
    at = next((number for number, above in enumerate(line) if above.kernel in _CLASSES), 0)
    return line[at + 1] if at + 1 < len(line) else thing


def _same(board: Board, found: Object) -> Object:
    """Refuses a device other than the one after which the board's lock and journal are named."""
    if isinstance(board, Located) and board.at not in {found.path, _device(found).path}:
        raise DeviceUnavailable(f"/sys/{found.path} has come since the last look at {board.place}")
    return found


def _in_regions(look: Look, board: Board, names: str) -> list[Object]:
    """The parts with such names of the board's regions."""
    regions = [thing for thing in look.objects("fpga_region") if is_at(thing, board)]
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

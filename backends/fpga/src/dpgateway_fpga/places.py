"""The place of a board in sysfs, found by its bus address, never by an enumerated number (fpga0).

Theory. A board is configured by an address, which several devices may be below: a card, and parts of it. It is
programmed by one object: an ``fpga_manager``, or with DFL drivers the management engine (``dfl-fme``) of an
``fpga_region``. The *device* of that object identifies the board, because its path doesn't depend on the address by
which a resource configures it; a device with several managers is several boards, each identified by its manager.
``located`` finds it at a look, and later accesses compare it (``_same``): a device that came meanwhile under the same
address is another board, with another lock.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dpgateway import DeviceUnavailable, DriverError
from dpgateway.sysfs import Look, Object
from dpgateway_fpga.boards import Board, Located, Plugged

_CLASSES = frozenset({"fpga_manager", "fpga_region"})


@dataclass(frozen=True, slots=True)
class Dfl:
    """A port of a card with DFL drivers, and the management engine that programs it."""

    engine: Object
    manager: Object
    port: Object


def manager(look: Look, board: Board, managers: Sequence[Object] = ()) -> Object:
    """The one fpga_manager of a board. Raises DeviceUnavailable if there is none; DriverError, OSError.

    ``managers``: all managers, if the caller has listed them.
    """
    found = [thing for thing in managers or look.objects("fpga_manager") if is_at(thing, board)]
    # a card may have a manager of its own, and others on devices inside it
    own = [thing for thing in found if _device(thing).kernel == board.place]
    return _same(board, _only(board, "fpga_manager", own or found))


def dfl(look: Look, board: Board) -> Dfl:
    """The board's port, engine and manager. Raises DeviceUnavailable if one is missing; DriverError, OSError."""
    engine = _same(board, _only(board, "dfl-fme", _in_regions(look, board, "dfl-fme.*")))
    ports = [port for port in _in_regions(look, board, "dfl-port.*") if look.value(port, "id") == str(board.port)]
    managers = [thing for thing in look.objects("fpga_manager") if engine in thing.line]
    return Dfl(engine, _only(board, "fpga_manager", managers), _only(board, f"dfl-port with id {board.port}", ports))


def located(look: Look, board: Board, programmer: str, managers: Sequence[Object]) -> Board:
    """The board with its programming device; unchanged if that is absent or ambiguous. Touches no register."""
    try:
        if programmer == "dfl":
            thing = _only(board, "dfl-fme", _in_regions(look, board, "dfl-fme.*"))
        else:
            thing = manager(look, board, managers)
        life = os.stat(f"{look.roots.sysfs}/{thing.path}").st_ino  # noqa: PTH116  as in dpgateway.sysfs
        return Located(**asdict(board), at=programmed(thing, managers).path, life=life)
    except (DriverError, OSError):  # the board's state reports it
        return board


def plugged(look: Look, board: Board) -> Board:
    """The board with the life of its USB device; unchanged if that is absent or ambiguous."""
    try:
        return Plugged(**asdict(board), life=usb_life(look, board))
    except (DriverError, OSError):  # the board's state reports it
        return board


def usb_life(look: Look, board: Board) -> int:
    """The life of the USB device that has the board's address as its serial number. Raises DeviceUnavailable if there
    is none, or if it was plugged in since the last look; DriverError, OSError.
    """
    found = [thing for thing in look.objects("usb") if look.value(thing, "serial") == board.place]
    thing = _only(board, "USB device (by its serial number)", found)
    life = os.stat(f"{look.roots.sysfs}/{thing.path}").st_ino  # noqa: PTH116  as in dpgateway.sysfs
    if board.life not in {None, life}:
        raise DeviceUnavailable(f"/sys/{thing.path} has come since the last look at {board.place}")
    return life


def programmed(thing: Object, managers: Sequence[Object]) -> Object:
    """The device behind a manager or a part of a region, which identifies the board; the manager itself if its device
    has several.
    """
    found = _device(thing)
    of_it = [one for one in managers if _device(one) == found]
    return thing if thing in of_it and len(of_it) > 1 else found


def _device(thing: Object) -> Object:
    """The device of a manager or of a region's part. The kernel puts a directory with the class's name between them
    (drivers/base/core.c, get_device_parent).
    """
    line = thing.line
    at = next((number for number, above in enumerate(line) if above.kernel in _CLASSES), 0)
    return line[at + 1] if at + 1 < len(line) else thing


def _same(board: Board, found: Object) -> Object:
    """Refuses a device other than the located one, after which the board's lock and journal entry are named."""
    if isinstance(board, Located) and board.at not in {found.path, _device(found).path}:
        raise DeviceUnavailable(f"/sys/{found.path} has come since the last look at {board.place}")
    return found


def _in_regions(look: Look, board: Board, names: str) -> list[Object]:
    """The parts of the board's regions whose names match a pattern."""
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
    """Whether an object is on the device with the board's address, or on one inside it."""
    return any(above.kernel == board.place for above in thing.line)

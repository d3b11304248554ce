"""Finds boards in sysfs, and names them by place: a bus address, and the port of a card with DFL drivers.

The kernel assigns the numbers of ``fpga0`` and ``dfl-port.0`` in order of appearance, so they identify nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpgateway.sysfs import HOST_DEV, LASTING, Look, NoValue, Object, Uevent, name_matches, numa_of
from dpgateway_fpga.boards import Board, Located
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.places import located, plugged, programmed
from dpgateway_fpga.ways import DISCOVERS

COUNTED = ".auto"
"""Ends names that the kernel numbers automatically, such as those of a PCI card's parts (drivers/base/platform.c,
platform_device_add)."""
LONGEST = 9
"""Limit of digits of a port's id."""
LOOKING = 5.0
"""Timeout in seconds of a look for boards: the gateway waits 10 s for a list."""


@dataclass(frozen=True, slots=True)
class FoundBoards:
    """The boards, and a notice for each candidate that can't be offered."""

    boards: Sequence[Board]
    notices: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A potential board in sysfs."""

    place: str | None
    port: int
    thing: Object
    wrong: str = "it is on no bus whose names last"
    """Why a candidate without a place isn't a board."""


def find(look: Look, options: FpgaOptions) -> FoundBoards:
    """The configured boards, and with ``discover`` those found in /sys. Raises OSError."""
    notices: list[str] = []
    found: list[Board] = []
    programmer = options.programmer
    boards = options.boards
    managers = list(look.objects("fpga_manager")) if programmer in DISCOVERS else []
    if options.by_serial:
        boards = tuple(plugged(look, board) for board in boards)
    elif programmer in DISCOVERS:
        boards = tuple(located(look, board, programmer, managers) for board in boards)
    candidates = list(_KINDS[programmer](look)) if options.discover else []

    # one hardware must never be two boards, which two containers could get: configured boards come first
    known = _known(boards, candidates, managers)
    for one in candidates:
        if one.place is None:
            notices.append(f"/sys/{one.thing.path} isn't offered: {one.wrong}")
            continue
        try:
            if one in known or not any(name_matches(one.place, glob) for glob in options.discover):
                continue
            id_ = f"{one.place}-p{one.port}" if programmer == "dfl" else one.place
            node = look.env(one.thing, "DEVNAME")
            nodes = () if isinstance(node, NoValue) else (f"{HOST_DEV}/{node}",)
            numa = next(iter(numa_of(look, one.thing)), None)
            board = Board(id_, nodes=nodes, numa=numa, address=one.place, port=one.port)
            found.append(located(look, board, programmer, managers))
        except ValueError as error:
            notices.append(f"/sys/{one.thing.path} isn't offered: {error}")
        except ExceptionGroup as several:
            wrong = "; ".join(map(str, several.exceptions))
            notices.append(f"/sys/{one.thing.path} isn't offered: {wrong}")
    notices += [f"/sys/{path} isn't offered: {why}" for path, why in look.strays.items()]
    times = Counter(board.id for board in (*boards, *found))
    notices += [f"{id_} isn't offered, because it names several boards" for id_, count in times.items() if count > 1]
    return FoundBoards((*boards, *(board for board in found if times[board.id] == 1)), notices)


def _known(
    boards: Sequence[Board], candidates: Sequence[_Candidate], managers: Sequence[Object]
) -> Sequence[_Candidate]:
    """The candidates that are configured boards, under the same address or another one."""
    named = {(board.place, board.port) for board in boards}
    at = {(board.at, board.port) for board in boards if isinstance(board, Located)}
    return [
        one
        for one in candidates
        if (one.place, one.port) in named or (programmed(one.thing, managers).path, one.port) in at
    ]


def concerns(event: Uevent) -> bool:
    """Whether an event may mean that a board came or went."""
    return event.subsystem in {"fpga_manager", "fpga_region"} or "/dfl-" in event.path


def concerns_usb(event: Uevent) -> bool:
    """The same for boards that are found by their serial numbers."""
    return event.subsystem == "usb"


def _place(look: Look, thing: Object) -> str | None:
    """The bus address of the object, or of the card that contains it."""
    lasting = (above.kernel for above in thing.line[1:] if look.subsystem(above) in LASTING)
    return next((name for name in lasting if not name.endswith(COUNTED)), None)


def _managers(look: Look) -> Iterator[_Candidate]:
    """All managers, except those of DFL cards, which are below a management engine (drivers/fpga/dfl-fme-main.c)."""
    for thing in look.objects("fpga_manager"):
        if not any(above.kernel.startswith("dfl-fme.") for above in thing.line):
            yield _Candidate(_place(look, thing), 0, thing)


def _ports(look: Look) -> Iterator[_Candidate]:
    for region in look.objects("fpga_region"):
        for name in look.entries(region, "dfl-port.*"):
            port = Object(f"{region.path}/{name}")
            number = look.value(port, "id")
            if isinstance(number, str) and number.isdecimal() and len(number) <= LONGEST:
                yield _Candidate(_place(look, region), int(number), port)
            else:
                said = number if isinstance(number, NoValue) else f"is {number!r}, expected a number"
                yield _Candidate(None, 0, port, f"its id {said}")


_KINDS: Mapping[str, Callable[[Look], Iterator[_Candidate]]] = {
    "dfl": _ports,
    "fpga-manager": _managers,
    "overlay": _managers,
}

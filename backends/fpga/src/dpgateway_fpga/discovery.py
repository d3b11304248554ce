"""Finds boards in sysfs, and names them by their places: a bus address, and the port of a card with DFL drivers.

Numbers that the kernel counts, as in ``fpga0`` and ``dfl-port.0``, go to whichever came first, so they name nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpgateway.sysfs import HOST_DEV, Look, NoValue, Object, Uevent, identity, name_matches, numa_of
from dpgateway_fpga.boards import Board
from dpgateway_fpga.options import FpgaOptions

_DFL_MANAGER = "DFL FME FPGA Manager"  # drivers/fpga/dfl-fme-mgr.c


@dataclass(frozen=True, slots=True)
class Found:
    """The boards, and what looks like one but can't be offered: texts."""

    boards: Sequence[Board]
    notices: Sequence[str]


def find(look: Look, options: FpgaOptions) -> Found:
    """The boards of the options, and those of their programmer that are found in /sys. Raises OSError."""
    places = {(board.place, board.port) for board in options.boards}
    notices: list[str] = []
    found: list[Board] = []
    for place, port, thing in _KINDS[options.programmer](look) if options.discover else ():
        if (place, port) in places or not any(name_matches(place, glob) for glob in options.discover):
            continue
        try:
            id_ = f"{place}-p{port}" if options.programmer == "dfl" else place
            found.append(_board(look, Board(id_, address=place, port=port), thing))
        except ValueError as error:
            notices.append(f"/sys/{thing.path} isn't offered: {error}")
    times = Counter(board.id for board in (*options.boards, *found))
    notices += [f"{id_} isn't offered, because it names several boards" for id_, count in times.items() if count > 1]
    return Found((*options.boards, *(board for board in found if times[board.id] == 1)), notices)


def concerns(event: Uevent) -> bool:
    """Whether boards may have come or gone."""
    return event.subsystem in {"fpga_manager", "fpga_region"} or "/dfl-" in event.path


def _board(look: Look, board: Board, thing: Object) -> Board:
    """With what sysfs says of it. Raises ValueError."""
    if board.place == thing.kernel:
        raise ValueError("it is on no bus whose names last")
    node = look.env(thing, "DEVNAME")
    nodes = () if isinstance(node, NoValue) else (f"{HOST_DEV}/{node}",)
    return replace(board, nodes=nodes, numa=next(iter(numa_of(look, thing)), None))


def _managers(look: Look) -> Iterator[tuple[str, int, Object]]:
    for thing in look.objects("fpga_manager"):
        if look.value(thing, "name") != _DFL_MANAGER:
            yield identity(look, thing)[-1], 0, thing


def _ports(look: Look) -> Iterator[tuple[str, int, Object]]:
    for region in look.objects("fpga_region"):
        card = next((above for above in region.line if look.subsystem(above) == "pci"), region)
        for name in look.entries(region, "dfl-port.*"):
            port = Object(f"{region.path}/{name}")
            if isinstance(number := look.value(port, "id"), str) and number.isdecimal():
                yield card.kernel, int(number), port


_KINDS: Mapping[str, Callable[[Look], Iterator[tuple[str, int, Object]]]] = {
    "dfl": _ports,
    "fpga-manager": _managers,
    "overlay": _managers,
}

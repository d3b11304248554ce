"""Hardware behind several devices of a pool, as counters that those devices consume.

Two devices with a hardware name in common exclude each other. The scheduler excludes them, too, if both consume a
counter of value 1 for that name (partitionable devices, KEP-4815). A device that is allocated several times, as shares,
consumes its counters once (seen on 1.37).

The API's limits shape the sets: a device consumes from two sets at most, and a set has 32 counters at most. So each
group of devices that are connected by hardware gets the fewest sets, and small groups share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dpgateway.dra.slices.names import label

MOST_COUNTERS = 32
"""Of a set (ResourceSliceMaxCountersPerCounterSet, resource/v1/types.go)."""
MOST_CONSUMED = 2
"""Sets from which a device may consume (ResourceSliceMaxDeviceCounterConsumptionsPerDevice)."""

_ONE = {"value": "1"}


class Counters(NamedTuple):
    """The counter sets of a pool."""

    sets: tuple[Mapping[str, object], ...]
    """Each as ``{"name": ..., "counters": {...}}``."""
    consumed: Mapping[str, Sequence[Mapping[str, object]]]
    """The field ``consumesCounters`` of each device with counters, by its key."""
    obstacles: tuple[str, ...]
    """Why devices can't be published: their hardware can't be said within the limits."""
    withheld: frozenset[str]
    """The keys of those devices."""


def counters(behind: Mapping[str, frozenset[str]]) -> Counters:
    """The counter sets of a pool. ``behind``: the names of each device's hardware, by the device's key."""
    users: dict[str, list[str]] = {}
    for id_, names in behind.items():
        for name in names:
            users.setdefault(name, []).append(id_)
    shared = {name: ids for name, ids in users.items() if len(ids) > 1}

    # Connected devices are cut into pieces of a set's size; a piece that isn't full is filled with the next group.
    pieces: list[list[str]] = []
    obstacles: list[str] = []
    withheld: set[str] = set()
    for group in _connected(shared, behind):
        own = [group[i : i + MOST_COUNTERS] for i in range(0, len(group), MOST_COUNTERS)]
        where = {name: at for at, piece in enumerate(own) for name in piece}
        concerned = sorted({id_ for name in group for id_ in shared[name]})
        over = [id_ for id_ in concerned if len({where[n] for n in behind[id_] if n in where}) > MOST_CONSUMED]
        if over:
            text = f"devices {', '.join(concerned[:3])} and more share {len(group)} names of hardware, expected"
            obstacles.append(f"{text} at most {MOST_CONSUMED * MOST_COUNTERS} behind {over[0]}; name less hardware")
            withheld.update(concerned)
        elif len(own) == 1 and pieces and len(pieces[-1]) + len(group) <= MOST_COUNTERS:
            pieces[-1] += group
        else:
            pieces += own

    # A set's name is that of its first counter, so that it stays when other groups come and go.
    sets = tuple({"name": label(piece[0]), "counters": {label(name): _ONE for name in piece}} for piece in pieces)
    place = {name: str(made["name"]) for made, piece in zip(sets, pieces, strict=True) for name in piece}
    consumed: dict[str, list[Mapping[str, object]]] = {}
    for id_, names in behind.items():
        by_set: dict[str, dict[str, object]] = {}
        for name in sorted(names & place.keys()):
            by_set.setdefault(place[name], {})[label(name)] = _ONE
        if by_set:
            consumed[id_] = [{"counterSet": set_, "counters": used} for set_, used in by_set.items()]
    return Counters(sets, consumed, tuple(obstacles), frozenset(withheld))


def _connected(shared: Mapping[str, Sequence[str]], behind: Mapping[str, frozenset[str]]) -> Iterable[list[str]]:
    """The shared names, in groups without a device in common, each sorted."""
    seen: set[str] = set()
    for first in sorted(shared):
        group, todo = set[str](), [first]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                group.add(name)
                todo += [other for id_ in shared[name] for other in behind[id_] if other in shared]
        if group:
            yield sorted(group)

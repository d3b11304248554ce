"""Chooses the best of the free ids for one container. Pure.

Criteria, in this order: the fewest repeats of one device (its second share adds no hardware), the fewest NUMA nodes
(including the must-include ids' nodes), then devices with the fewest free shares (``packed``) or the most (``spread``),
then the id.

Theory of operation. Devices are chosen from a set of NUMA nodes; the sets are tried smallest first, and the first that
needs no more repeats than all nodes together wins. The hard part is which set to try next: growing one set by the node
that adds most devices misses the optimum where a device is near two nodes, so up to six nodes every set is tried.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

from dpgateway.deviceplugin.values import Preference
from dpgateway.model import Device

Order = Literal["packed", "spread"]

_EXACT_NODES = 6
"""Up to this many NUMA nodes every set is tried (63 of them); with more, one set grows by the best next node."""
_MOST_LOOKS = 1_000_000
"""Most looks at a device for one choice, one for each device and set; so many take half a second."""
_MOST_NODES = 64
"""With more NUMA nodes (no machine has so many), or more than _MOST_LOOKS, only two sets are tried."""

Nodes = frozenset[int]


def best_ids(request: Preference, device_of: Callable[[str], Device | None], order: Order) -> tuple[str, ...]:
    """Exactly ``size`` ids: the must-include ids, and the best of the others; empty if that is impossible.

    ``device_of`` looks an offered id up; an id without a device counts as a device of its own, near no NUMA node.
    """
    included = dict.fromkeys(request.must_include)
    must = tuple(included)
    wanted = request.size - len(must)
    free = [i for i in dict.fromkeys(request.available) if i not in included]
    if wanted < 0 or wanted > len(free):
        return ()
    # The kubelet's list is older than ours: Allocate would refuse devices that have vanished or broken since.
    usable = [i for i in free if (device := device_of(i)) and device.health.ok]
    free = usable if len(usable) >= wanted else free
    if wanted == 0:
        return must
    table = _Table(must, free, device_of, order)
    best: tuple[tuple[int, int], list[str]] | None = None
    for nodes in table.node_sets():
        chosen = table.choose(nodes, wanted)
        if chosen is None:
            continue
        score = (table.repeats(chosen), len(nodes))
        if best is None or score < best[0]:
            best = (score, chosen)
        if score[0] == table.fewest_repeats(wanted):
            break  # node sets come smallest first, so no later one is better
    return (*must, *best[1]) if best else ()


class _Table:
    """The free ids by device, in the order of preference."""

    def __init__(
        self, must: Sequence[str], free: Sequence[str], device_of: Callable[[str], Device | None], order: Order
    ) -> None:
        self._nodes: dict[str, Nodes] = {}
        self._device: dict[str, str] = {}
        for offered in (*must, *free):
            # An id without a device gets a name that no device has.
            device = device_of(offered)
            self._device[offered] = device.id if device else f"\0{offered}"
            self._nodes[self._device[offered]] = frozenset(device.numa_nodes if device else ())
        self._taken = [self._device[offered] for offered in must]
        self._must_nodes: Nodes = frozenset().union(*(self._nodes[d] for d in self._taken))
        self._free: dict[str, list[str]] = defaultdict(list)
        for offered in sorted(free):
            self._free[self._device[offered]].append(offered)
        self._groups = Counter(self._nodes[d] for d in self._free)
        sign = 1 if order == "packed" else -1
        self._ranked = sorted(self._free, key=lambda d: (sign * len(self._free[d]), d))

    def node_sets(self) -> Iterable[Nodes]:
        """The sets of NUMA nodes to choose from, smallest first, each with the must-include ids' nodes."""
        others = sorted(frozenset().union(*self._groups) - self._must_nodes)
        # Too much to search: only the must-include ids' nodes, or else all.
        if len(others) > _MOST_NODES or len(self._device) * (len(others) + 1) > _MOST_LOOKS:
            yield self._must_nodes
            yield self._must_nodes.union(others)
            return
        # Few nodes: every set.
        if len(others) <= _EXACT_NODES and len(self._free) << len(others) <= _MOST_LOOKS:
            rank = {device: place for place, device in enumerate(self._ranked)}
            for count in range(len(others) + 1):
                # Of sets of one size those with the best-ranked devices first: among equal sets the order decides.
                ranked = []
                for extra in itertools.combinations(others, count):
                    best_devices = self._within(self._must_nodes | set(extra))[:64]
                    ranked.append(([rank[device] for device in best_devices], extra))
                for _, extra in sorted(ranked):
                    yield self._must_nodes | frozenset(extra)
            return
        # Otherwise greedily: one set, grown by the node that adds most devices.
        grown = self._must_nodes
        yield grown
        while others:
            gain = {
                node: sum(count for near, count in self._groups.items() if near <= grown | {node}) for node in others
            }
            best = max(gain, key=lambda node: (gain[node], -node))
            others.remove(best)
            grown |= {best}
            yield grown

    def _within(self, nodes: Collection[int]) -> list[str]:
        allowed = frozenset(nodes)
        inside = {near for near in self._groups if near <= allowed}
        return [d for d in self._ranked if self._nodes[d] in inside]

    def choose(self, nodes: Nodes, wanted: int) -> list[str] | None:
        """``wanted`` ids near no other nodes than these; None if there are too few. Takes one id of each device before
        the second of any, counting the must-include ids, to minimize repeats.
        """
        candidates = self._within(nodes)
        if sum(len(self._free[d]) for d in candidates) < wanted:
            return None
        count = Counter(self._taken)
        chosen: list[str] = []
        left = {d: iter(self._free[d]) for d in candidates}
        level = 0
        while len(chosen) < wanted:
            for device in candidates:
                if count[device] == level and (offered := next(left[device], None)) is not None:
                    chosen.append(offered)
                    count[device] += 1
                    if len(chosen) == wanted:
                        break
            level += 1
        return chosen

    def repeats(self, chosen: Iterable[str]) -> int:
        devices = [*self._taken, *(self._device[offered] for offered in chosen)]
        return len(devices) - len(set(devices))

    def fewest_repeats(self, wanted: int) -> int:
        devices = len(set(self._taken) | set(self._ranked))
        return max(len(self._taken) + wanted - devices, len(self._taken) - len(set(self._taken)))

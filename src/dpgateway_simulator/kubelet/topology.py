"""The topology manager's part in an admission, container scope, with the device manager as its only hint provider.

pkg/kubelet/cm/topologymanager/policy*.go and devicemanager/topology_hints.go. Pure.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
NO_LOCALITY = "Resources cannot be allocated with Topology locality"
Mask = frozenset[int]


class MissingDeviceError(LookupError):
    """A device isn't in the list, and its topology was asked for."""


@dataclass(frozen=True)
class Hint:
    """NUMA nodes on which a request fits. An affinity of None means any."""

    affinity: Mask | None
    preferred: bool


@dataclass(frozen=True)
class Candidates:
    """The devices that a request for `number` may take. `nodes` has every listed device; None in it: no topology."""

    nodes: Mapping[str, tuple[int, ...] | None]
    available: frozenset[str]
    reusable: frozenset[str]
    number: int
    possible: bool = True  # False: fewer devices than wanted, or another number than allocated

    @property
    def aligned(self) -> bool:
        return any(self.nodes.values())


def hints(candidates: Candidates, numa: Sequence[int], *, missing_crashes: bool) -> list[Hint]:
    """generateDeviceTopologyHints. `missing_crashes`: an id that isn't listed raises MissingDeviceError."""
    if not candidates.aligned:
        return [Hint(None, preferred=True)]
    if not candidates.possible:
        return [Hint(None, preferred=False)]
    unlisted = (candidates.available | candidates.reusable) - candidates.nodes.keys()
    if unlisted and missing_crashes:
        raise MissingDeviceError(min(unlisted))
    fitting, smallest = [], len(numa)
    sizes = range(1, len(numa) + 1)
    for mask in map(frozenset, itertools.chain.from_iterable(itertools.combinations(numa, size) for size in sizes)):
        if sum(_touches(mask, nodes) for nodes in candidates.nodes.values()) >= candidates.number:
            smallest = min(smallest, len(mask))
        if _fits(candidates, mask):
            fitting.append(mask)
    found = [Hint(mask, preferred=len(mask) == smallest) for mask in fitting]
    return found or [Hint(None, preferred=False)]


def _touches(mask: Mask, nodes: tuple[int, ...] | None) -> bool:
    return bool(mask.intersection(nodes or ()))


def _fits(candidates: Candidates, mask: Mask) -> bool:
    matching = 0
    for device in candidates.reusable:
        nodes = candidates.nodes.get(device)
        if nodes is None:
            continue
        if not _touches(mask, nodes):
            return False
        matching += 1
    matching += sum(_touches(mask, candidates.nodes.get(device)) for device in candidates.available)
    return matching >= candidates.number


def merge(policy: str, resources: Sequence[list[Hint]], numa: Sequence[int]) -> tuple[Mask | None, bool]:
    """The best affinity of all resources together, and whether the policy admits it."""
    everywhere = frozenset(numa)
    if policy == "single-numa-node":
        resources = [
            [hint for hint in some if hint.preferred and (hint.affinity is None or len(hint.affinity) == 1)]
            for some in resources
        ]
    best: Hint | None = None
    sizes = ([len(hint.affinity) for hint in some if hint.affinity is not None] for some in resources)
    widest = max((min(some, default=0) for some in sizes), default=0)
    for together in itertools.product(*resources):
        best = _better(best, _joined(everywhere, together), widest)
    best = best or Hint(everywhere, preferred=False)
    affinity = None if policy == "single-numa-node" and best.affinity == everywhere else best.affinity
    return affinity, policy == "best-effort" or best.preferred


def _joined(everywhere: Mask, together: Sequence[Hint]) -> Hint:
    masks = [hint.affinity for hint in together if hint.affinity is not None]
    preferred = all(hint.preferred for hint in together) and all(mask == masks[0] for mask in masks)
    return Hint(everywhere.intersection(*masks), preferred)


def _better(current: Hint | None, candidate: Hint, widest: int) -> Hint | None:
    """HintMerger.compare: preferred first, then the narrowest; among the others the closest to `widest` from below."""
    if not candidate.affinity:
        return current
    if current is None:
        return candidate
    if current.preferred != candidate.preferred:
        return candidate if candidate.preferred else current
    if candidate.preferred:
        return min(current, candidate, key=_order)
    return min(current, candidate, key=lambda hint: (_distance(hint, widest), *_order(hint)))


def _distance(hint: Hint, widest: int) -> int:
    size = len(hint.affinity or ())
    return size - widest + 1000 if size > widest else widest - size


def _order(hint: Hint) -> tuple[int, int]:
    mask = hint.affinity or frozenset()
    return len(mask), sum(1 << node for node in mask)

"""The topology manager in container scope, with the device manager as its only hint provider. Pure.

For each resource `hints` gives every set of NUMA nodes (a mask) on which the request fits; the smallest are preferred.
`merge` takes one hint per resource, in all combinations, intersects their masks and keeps the best intersection; the
policy then admits or refuses it. pkg/kubelet/cm/topologymanager/policy*.go, devicemanager/topology_hints.go.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
NO_LOCALITY = "Resources cannot be allocated with Topology locality"
Mask = frozenset[int]


class MissingDeviceError(LookupError):
    """The topology of an unlisted device is needed."""


@dataclass(frozen=True)
class Hint:
    """NUMA nodes on which a request fits. Affinity None: any node."""

    affinity: Mask | None
    preferred: bool


@dataclass(frozen=True)
class Candidates:
    """The devices that a request for `number` may take.

    `nodes` contains the NUMA nodes of every listed device, keyed by id; None: the device has no topology.
    """

    nodes: Mapping[str, tuple[int, ...] | None]
    available: frozenset[str]
    reusable: frozenset[str]
    number: int
    possible: bool = True  # False: too few devices, or a request that differs from the allocated number


def hints(candidates: Candidates, numa: Sequence[int], *, missing_crashes: bool) -> list[Hint]:
    """generateDeviceTopologyHints. `missing_crashes`: an unlisted id raises MissingDeviceError."""
    if not any(candidates.nodes.values()):
        return [Hint(None, preferred=True)]
    if not candidates.possible:
        return [Hint(None, preferred=False)]
    unlisted = (candidates.available | candidates.reusable) - candidates.nodes.keys()
    if unlisted and missing_crashes:
        raise MissingDeviceError(min(unlisted))

    # The smallest mask is one that could fit the request, counting allocated devices as well: a hint is preferred
    # only if free devices fit a mask of that size. A mask must include every placed device that is to be reused.
    placed = {device for device, nodes in candidates.nodes.items() if nodes is not None}
    fitting, smallest = [], len(numa)
    sizes = range(1, len(numa) + 1)
    for mask in map(frozenset, itertools.chain.from_iterable(itertools.combinations(numa, size) for size in sizes)):
        on = {device for device, nodes in candidates.nodes.items() if mask.intersection(nodes or ())}
        if len(on) >= candidates.number:
            smallest = min(smallest, len(mask))
        number = len(on & candidates.available) + len(on & candidates.reusable)
        if placed & candidates.reusable <= on and number >= candidates.number:
            fitting.append(mask)
    found = [Hint(mask, preferred=len(mask) == smallest) for mask in fitting]
    return found or [Hint(None, preferred=False)]


def merge(policy: str, resources: Sequence[list[Hint]], numa: Sequence[int]) -> tuple[Mask | None, bool]:
    """The best affinity of all resources together, and whether the policy admits the container."""
    everywhere = frozenset(numa)
    if policy == "single-numa-node":
        resources = [
            [hint for hint in some if hint.preferred and (hint.affinity is None or len(hint.affinity) == 1)]
            for some in resources
        ]

    # HintMerger.compare: preferred before others, then the narrowest. A hint that isn't preferred should be as wide as
    # the widest of the resources' narrowest hints: they are ordered by that distance, from below before from above.
    sizes = ([len(hint.affinity) for hint in some if hint.affinity is not None] for some in resources)
    widest = max((min(some, default=0) for some in sizes), default=0)
    best, lowest = Hint(everywhere, preferred=False), None
    for together in itertools.product(*resources):
        masks = [hint.affinity for hint in together if hint.affinity is not None]
        mask = everywhere.intersection(*masks)
        preferred = all(hint.preferred for hint in together) and all(one == masks[0] for one in masks)
        beyond = len(mask) - widest
        distance = 0 if preferred else beyond + 1000 if beyond > 0 else -beyond
        rank = (not preferred, distance, len(mask), sum(1 << node for node in mask))
        if mask and (lowest is None or rank < lowest):
            best, lowest = Hint(mask, preferred), rank

    # All nodes together constrain nothing; single-numa-node then passes no affinity (policy_single_numa_node.go).
    affinity = None if policy == "single-numa-node" and best.affinity == everywhere else best.affinity
    return affinity, policy == "best-effort" or best.preferred

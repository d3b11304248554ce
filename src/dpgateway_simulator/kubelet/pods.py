"""Pods and their containers, as far as devices go, and the general predicate: do a pod's requests fit the node? Pure.

The predicate uses the node's own account: pkg/kubelet/lifecycle/predicate.go, and sanitizeNodeAllocatable in
cm/devicemanager/manager.go.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpgateway_simulator.kubelet.ledger import DeviceLedger

Spec = Mapping[str, Mapping[str, int]] | Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class PodContainer:
    """A container and its limits of extended resources; `restartable` makes an init container a sidecar."""

    name: str
    resources: Mapping[str, int]
    restartable: bool = False
    by_claim: frozenset[str] = frozenset()  # extended resources that it has by a claim


@dataclass(frozen=True)
class PodClaim:
    """A claim that a pod uses. `users`: (container, request) of each use; without a request all of the claim's."""

    object: str  # the ResourceClaim's name
    users: tuple[tuple[str, str], ...]
    name: str = ""  # in the pod's spec; the claim of its extended resources has none


@dataclass(frozen=True)
class Pod:
    """A pod. `uid` is its name, unless an API server gave it another; only such a pod has claims."""

    name: str
    containers: tuple[PodContainer, ...]
    init: tuple[PodContainer, ...] = ()
    claims: tuple[PodClaim, ...] = ()
    object_uid: str = ""

    @property
    def uid(self) -> str:
        return self.object_uid or self.name

    @property
    def all(self) -> tuple[PodContainer, ...]:
        return self.init + self.containers


def containers(spec: Spec) -> tuple[PodContainer, ...]:
    """Parses {"name": {"x.com/y": 1}}, or container objects as in a pod's manifest."""
    if isinstance(spec, Mapping):
        return tuple(PodContainer(name, dict(resources)) for name, resources in spec.items())
    parsed = []
    for one in spec:
        resources: Mapping[str, Any] = one.get("resources") or {}
        limits = resources.get("limits", resources)
        numbers = {name: int(amount) for name, amount in limits.items()}
        parsed.append(PodContainer(one["name"], numbers, one.get("restartPolicy") == "Always"))
    return tuple(parsed)


def requests(pod: Pod) -> Counter[str]:
    """A pod's requests: the sum of its containers and sidecars, or its largest init container if that is more."""
    total: Counter[str] = Counter()
    for container in (*pod.containers, *(one for one in pod.init if one.restartable)):
        total.update(container.resources)
    for container in pod.init:
        total |= Counter(container.resources)
    return total


def allocatable(ledger: DeviceLedger, counts: Mapping[str, int], pod: str) -> dict[str, int]:
    """The node's allocatable devices. For a pod with devices they include all in use, so that the pod survives a
    restart of the kubelet, when no plugin has registered yet.
    """
    node = dict(counts)
    if any(one.pod == pod for one in ledger.holdings.values()):
        for resource, ids in ledger.allocated.items():
            node[resource] = max(node.get(resource, 0), len(ids))
    return node


def short_of(
    pod: Pod, others: Iterable[Pod], node: Mapping[str, int], *, missing_is_fine: bool
) -> tuple[str, str] | None:
    """The first resource that is short, and the kubelet's message; None if the pod fits.

    From 1.10 on a resource unknown to the node is skipped, because it may be a cluster-level resource.
    """
    used = sum((requests(other) for other in others), Counter[str]())
    for resource, wanted in requests(pod).items():
        if resource not in node and missing_is_fine:
            continue
        capacity = node.get(resource, 0)
        if wanted and wanted + used[resource] > capacity:
            numbers = f"requested: {wanted}, used: {used[resource]}, capacity: {capacity}"
            return resource, f"Node didn't have enough resource: {resource}, {numbers}"
    return None

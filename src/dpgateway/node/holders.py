"""Who has an id, as each source says it: the kubelet's checkpoint, and PodResources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Container(NamedTuple):
    """A container as the checkpoint names it."""

    pod_uid: str
    name: str
    answer: bytes = b""
    """The plugin's answer to Allocate, which the kubelet repeats at each start of the container: a serialized
    ``ContainerAllocateResponse``. Empty if it gives nothing; also of 1.8, which allocates again instead."""


class Holder(NamedTuple):
    """A container as PodResources names it."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod} ({self.container})"


class Noted(NamedTuple):
    """What the kubelet wrote down of one id."""

    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes that the kubelet knew the id to be near."""
    containers: frozenset[Container] = frozenset()

    @property
    def pods(self) -> frozenset[str]:
        return frozenset(container.pod_uid for container in self.containers)

    def joined(self, other: Noted) -> Noted:
        """What two entries for the same id say together."""
        nodes = tuple(sorted({*self.numa_nodes, *other.numa_nodes}))
        return Noted(nodes, self.containers | other.containers)


Note = Mapping[str, Noted]
"""The ids that the kubelet wrote down."""

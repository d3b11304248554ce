"""The holders of an id, in the terms of each source: the kubelet's checkpoint, and PodResources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Container(NamedTuple):
    """A container as the checkpoint names it."""

    pod_uid: str
    name: str
    answer: bytes = b""
    """The plugin's answer to Allocate, which the kubelet repeats at each start of the container: a serialized
    ``ContainerAllocateResponse``. Empty for an empty answer, and for 1.8, which allocates again instead."""


class Holder(NamedTuple):
    """A container as PodResources names it."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod} ({self.container})"


class Noted(NamedTuple):
    """The checkpoint's entries for one id."""

    numa_nodes: tuple[int, ...] = ()
    """The id's NUMA nodes, as the kubelet knew them."""
    containers: frozenset[Container] = frozenset()
    """The containers that hold the id."""

    @property
    def pods(self) -> frozenset[str]:
        return frozenset(container.pod_uid for container in self.containers)

    def joined(self, other: Noted) -> Noted:
        """Merges two entries for the same id."""
        nodes = tuple(sorted({*self.numa_nodes, *other.numa_nodes}))
        return Noted(nodes, self.containers | other.containers)


Note = Mapping[str, Noted]
"""The ids of a resource in the checkpoint."""

"""Who has an id, as each source says it: the kubelet's checkpoint, PodResources, and what the gateway remembers."""

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


NO_KUBELET = "none"
"""Stands for the kubelet of an id whose Allocate hasn't succeeded, so that no note can be too old to have it."""


class Unreleased(NamedTuple):
    """An id that was in use and hasn't been released to its driver yet."""

    kubelet: str
    """Which incarnation of the kubelet knew of it. Another one's note proves nothing, because that kubelet may have
    forgotten what its containers hold."""
    pods: frozenset[str] = frozenset()
    """The uids of the pods that had it, if a note told them; or of all pods of which one may have it."""
    hardware: frozenset[str] = frozenset()
    """What was behind the device when it was given away: later the device may be gone, or another one's name."""
    since: int | None = None
    """When it was given away, in seconds since 1970, because that outlives a gateway; None if no gateway saw it."""
    device: str = ""
    """The driver's id of the device when it was given away; empty if no gateway saw it. Another `shares.ids` gives an
    id another meaning, or none."""
    driver: str | None = None
    """Which driver is to be told that the device is free; empty if the one that gave it has no ``release``, None if no
    gateway saw who gave it."""
    boot: str = ""
    """During which boot of the node a kubelet had it last; empty if that isn't known."""

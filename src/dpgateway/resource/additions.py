"""What a resource's configuration adds to each allocation. It wins over the driver; callers log what it replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpgateway.model import Allocation, DeviceNode, Mount, place


@dataclass(frozen=True, slots=True)
class Additions:
    """The constant part of a resource's allocations."""

    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()


def hidden(allocation: Allocation, extra: Additions) -> str:
    """Why a container wouldn't see a device that it gets: the configuration mounts something over its node. Empty, if
    nothing is.
    """
    places = {place(mount.container_path): number for number, mount in enumerate(extra.mounts)}
    for node in allocation.device_nodes if places else ():
        if (number := places.get(place(str(node.container_path)))) is not None:
            inside = f"mounts[{number}].container_path is {extra.mounts[number].container_path!r}"
            return f"{inside}, which is the path of its device node {node.host_path}; expected another one"
    return ""


def add(allocation: Allocation, extra: Additions) -> tuple[Allocation, tuple[str, ...]]:
    """The allocation with the configuration's additions, and the names of what they replaced."""
    if not (extra.env or extra.annotations or extra.mounts):
        return allocation, ()
    places = {place(mount.container_path) for mount in extra.mounts}

    def taken(what: DeviceNode | Mount) -> bool:
        return place(str(what.container_path)) in places

    replaced = [
        *(f"env {name}" for name in extra.env if allocation.env.get(name, extra.env[name]) != extra.env[name]),
        *(
            f"annotation {name}"
            for name in extra.annotations
            if allocation.annotations.get(name, extra.annotations[name]) != extra.annotations[name]
        ),
        *(f"mount {m.container_path}" for m in allocation.mounts if taken(m) and m not in extra.mounts),
        *(f"device node {n.container_path}" for n in allocation.device_nodes if taken(n)),
    ]
    merged = replace(
        allocation,
        env={**allocation.env, **extra.env},
        device_nodes=tuple(n for n in allocation.device_nodes if not taken(n)),
        mounts=(*(m for m in allocation.mounts if not taken(m)), *extra.mounts),
        annotations={**allocation.annotations, **extra.annotations},
    )
    return merged, tuple(replaced)

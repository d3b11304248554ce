"""A resource's additions to each allocation: env, annotations and mounts, which win over the driver's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpgateway.config import ResourceConfig
from dpgateway.model import Allocation, place
from dpgateway.resource.shares import environment


def complete(allocation: Allocation, config: ResourceConfig, granted: int) -> tuple[Allocation, tuple[str, ...]]:
    """The allocation of ``granted`` ids with the additions, and the names of replaced values, for the log.

    Raises ValueError if a configured mount would hide a device node from the container.
    """
    env: Mapping[str, str] = config.env
    if config.shares.env:
        env = {**environment(config.shares.env, granted, config.shares.count), **env}
    if not (env or config.annotations or config.mounts):
        return allocation, ()

    # Paths are compared normalized, because a container path has many spellings.
    places = {place(mount.container_path): number for number, mount in enumerate(config.mounts)}
    for node in allocation.device_nodes:
        if (number := places.get(place(str(node.container_path)))) is not None:
            inside = f"mounts[{number}].container_path is {config.mounts[number].container_path!r}"
            what = f"the path of its device node {node.host_path}"
            raise ValueError(f"{inside}, which is {what}; expected another one")
    over = [mount for mount in allocation.mounts if place(mount.container_path) in places]

    replaced = (
        *(f"env {name}" for name in _others(allocation.env, env)),
        *(f"annotation {name}" for name in _others(allocation.annotations, config.annotations)),
        *(f"mount {mount.container_path}" for mount in over if mount not in config.mounts),
    )
    completed = replace(
        allocation,
        env={**allocation.env, **env},
        mounts=(*(mount for mount in allocation.mounts if mount not in over), *config.mounts),
        annotations={**allocation.annotations, **config.annotations},
    )
    return completed, replaced


def _others(given: Mapping[str, str], added: Mapping[str, str]) -> list[str]:
    """The names that both have, with different values."""
    return [name for name, value in added.items() if given.get(name, value) != value]

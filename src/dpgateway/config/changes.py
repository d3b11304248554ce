"""What a new configuration changes while the old one is served: arithmetic over two lists of resources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from dpgateway.config.completing import Configuration
from dpgateway.config.values import Kubelet, ResourceConfig

IN_PLACE = frozenset({"nodes"})
"""The keys that a resource takes over while it goes on. For any other key it is stopped and started again."""

_COMPARED = tuple(field.name for field in fields(ResourceConfig) if field.compare)


@dataclass(frozen=True, slots=True)
class Changes:
    """Every resource of the new configuration, and those that it leaves out, each once."""

    added: tuple[ResourceConfig, ...] = ()
    removed: tuple[ResourceConfig, ...] = ()
    restarted: tuple[ResourceConfig, ...] = ()
    amended: tuple[ResourceConfig, ...] = ()
    """They go on, with other values of keys that are IN_PLACE."""
    same: tuple[ResourceConfig, ...] = ()
    """They mean the same as before; only their places in the file may be others."""
    unusable: tuple[ResourceConfig, ...] = ()
    """Their drivers can't be used now, so what is served goes on as before."""

    def __str__(self) -> str:
        parts = (
            ("added", self.added),
            ("removed", self.removed),
            ("restarted", self.restarted),
            ("changed in place", self.amended),
            ("as before, because its driver can't be used now", self.unusable),
        )
        said = [f"{what}: {', '.join(one.name for one in which)}" for what, which in parts if which]
        return "; ".join(said)


def changes(old: Iterable[ResourceConfig], new: Iterable[ResourceConfig]) -> Changes:
    """Compares options, whose class is the driver's: so it may hang, and must not run in the event loop."""
    before = {resource.name: resource.by_now() for resource in old}
    found: dict[str, list[ResourceConfig]] = {field.name: [] for field in fields(Changes)}
    for resource in (one.by_now() for one in new):
        found[_fate(before.pop(resource.name, None), resource)].append(resource)
    return Changes(**{what: tuple(which) for what, which in found.items()} | {"removed": tuple(before.values())})


def _fate(old: ResourceConfig | None, new: ResourceConfig) -> str:
    if old is None:
        return "added"
    if new.failure and not old.failure:
        return "unusable"
    different = {key for key in _COMPARED if not _equal(getattr(old, key), getattr(new, key))}
    if different - IN_PLACE or (different and old.failure):  # what failed has nothing that could go on
        return "restarted"
    return "amended" if different else "same"


def _equal(old: object, new: object) -> bool:
    try:
        return bool(old == new)
    except Exception:  # of a driver's own class; a restart is right whatever it means
        return False


def fixed(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The keys outside of resources that differ; they count from the next start of the gateway."""
    keys = [f"kubelet.{key.name}" for key in fields(Kubelet) if _differ(old.kubelet, new.kubelet, key.name)]
    return (*keys, *(["state_dir"] if old.state_dir != new.state_dir else []))


def _differ(old: Kubelet, new: Kubelet, key: str) -> bool:
    return bool(getattr(old, key) != getattr(new, key))

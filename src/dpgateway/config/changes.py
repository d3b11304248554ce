"""What a new configuration changes while the old one is served: arithmetic over two lists of resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dpgateway.config.values import Configuration, ResourceConfig
from dpgateway.kit.observable import Observable

IN_PLACE = frozenset(
    {"nodes", "shares", "preference", "cdi", "pool", "keep_lost", "refresh", "env", "annotations", "mounts", "timeouts"}
)
"""The keys that a resource takes over while it goes on. For any other key it is stopped and started again."""

_KEYS = {"driver_class": "driver", "failure": "driver"}
"""What the file calls these fields."""


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
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Which keys differ, of each resource that is restarted or amended, by its name."""

    def __str__(self) -> str:
        parts = (
            ("added", self.added),
            ("removed", self.removed),
            ("restarted", self.restarted),
            ("changed in place", self.amended),
            ("as before, because its driver can't be used now", self.unusable),
        )
        return "; ".join(f"{what}: {', '.join(map(self._named, which))}" for what, which in parts if which)

    def _named(self, resource: ResourceConfig) -> str:
        keys = self.keys.get(resource.name)
        return f"{resource.name} ({', '.join(keys)})" if keys else resource.name


def changes(old: Iterable[ResourceConfig], new: Iterable[ResourceConfig]) -> Changes:
    """Compares options, whose class is the driver's: so it may hang, and must not run in the event loop.

    A driver that isn't loaded yet hasn't typed its options. They are compared as they are written, and a resource that
    is served goes on with the driver that it has.
    """
    before = {resource.name: resource for resource in old}
    found: dict[str, list[ResourceConfig]] = defaultdict(list)
    keys: dict[str, tuple[str, ...]] = {}
    for given in new:
        was = before.pop(given.name, None)
        resource = given if was is None or given.load is None else given.loaded_as(was)
        different = tuple(dict.fromkeys(_KEYS.get(key, key) for key in _differing(was, resource))) if was else ()
        fate = _fate(was, resource, different)
        found[fate].append(resource)
        if fate in {"restarted", "amended"}:
            keys[resource.name] = different
    fates = {fate: tuple(which) for fate, which in found.items()}
    return Changes(**fates, removed=tuple(before.values()), keys=keys)


def _fate(old: ResourceConfig | None, new: ResourceConfig, different: tuple[str, ...]) -> str:
    if old is None:
        return "added"
    if new.failure and new.load is None and not old.failure:
        return "unusable"
    if not IN_PLACE.issuperset(different) or (different and old.failure):  # what failed has nothing that could go on
        return "restarted"
    return "amended" if different else "same"


def _differing(old: Any, new: Any) -> Iterator[str]:  # noqa: ANN401  two dataclasses of one kind
    names = (one.name for one in fields(old) if one.compare)
    return (name for name in names if not _equal(getattr(old, name), getattr(new, name)))


def _equal(old: object, new: object) -> bool:
    try:
        return bool(old == new)
    except Exception:  # raised by a driver's own class; a restart is right whatever it means
        return False


def watched(config: ResourceConfig) -> Observable[ResourceConfig]:
    """To be read where it is used. News is what changes in place: to compare options would run a driver's code."""
    return Observable(config, lambda new, old: any(getattr(new, key) != getattr(old, key) for key in IN_PLACE))


def fixed(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The keys outside of resources that differ; they count from the next start of the gateway."""
    kubelet = (f"kubelet.{key}" for key in _differing(old.kubelet, new.kubelet))
    runtime = (f"runtime.{key}" for key in _differing(old.runtime, new.runtime))
    return (*kubelet, *runtime, *(["state_dir"] if old.state_dir != new.state_dir else []))


def taken_over(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The keys outside of resources that differ, and that a reload takes over."""
    return ("web",) if old.web != new.web else ()

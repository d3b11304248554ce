"""The diff of two configurations: which resources a reload adds, removes, restarts, or changes in place."""

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
"""The keys that a running resource can change. Any other key restarts it."""

_KEYS = {"driver_class": "driver", "failure": "driver"}
"""The fields that the file has under another key."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The resources of both configurations, each in one of these."""

    added: tuple[ResourceConfig, ...] = ()
    removed: tuple[ResourceConfig, ...] = ()
    restarted: tuple[ResourceConfig, ...] = ()
    amended: tuple[ResourceConfig, ...] = ()
    """Only keys of IN_PLACE differ."""
    same: tuple[ResourceConfig, ...] = ()
    """Only their places in the file may differ."""
    unusable: tuple[ResourceConfig, ...] = ()
    """They run, and the drivers of their new configurations can't be used, so the old configurations stay."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The keys that differ, by the name of a restarted or amended resource."""

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
    except Exception:  # of a driver's own class: a restart is always right
        return False


def watched(config: ResourceConfig) -> Observable[ResourceConfig]:
    """To be read where it is used. News is what changes in place: to compare options would run a driver's code."""
    return Observable(config, lambda new, old: any(getattr(new, key) != getattr(old, key) for key in IN_PLACE))


def restart_keys(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The keys outside of resources that differ and count from the next start of the gateway only."""
    kubelet = (f"kubelet.{key}" for key in _differing(old.kubelet, new.kubelet))
    runtime = (f"runtime.{key}" for key in _differing(old.runtime, new.runtime))
    return (*kubelet, *runtime, *(["state_dir"] if old.state_dir != new.state_dir else []))


def reload_keys(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The keys outside of resources that differ and count from the reload on."""
    return ("web",) if old.web != new.web else ()

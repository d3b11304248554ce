"""The diff of two configurations: which resources a reload adds, removes, restarts, or changes in place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dpgateway.config.values import Configuration, ResourceConfig

IN_PLACE = frozenset(
    {"nodes", "shares", "preference", "cdi", "pool", "keep_lost", "refresh", "env", "annotations", "mounts", "timeouts"}
)
"""The keys that a running resource can change. Any other key restarts it."""

_KEYS = {"driver_class": "driver", "failure": "driver"}
"""Fields whose key in the file has another name."""


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
    """They run with their old configurations, because the drivers of the new ones can't be used."""
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
        texts = []
        for what, which in parts:
            keys = [", ".join(self.keys.get(one.name, ())) for one in which]
            named = [f"{one.name} ({some})" if some else one.name for one, some in zip(which, keys, strict=True)]
            texts += [f"{what}: {', '.join(named)}"] if named else []
        return "; ".join(texts)


def changes(old: Iterable[ResourceConfig], new: Iterable[ResourceConfig]) -> Changes:
    """The diff. It compares options with the driver's own ``__eq__``, so it may hang: not for the event loop.

    The options of a driver that isn't loaded yet are untyped. They are compared as written, and a served resource keeps
    its present driver.
    """
    before = {resource.name: resource for resource in old}
    found: dict[str, list[ResourceConfig]] = defaultdict(list)
    keys: dict[str, tuple[str, ...]] = {}
    for given in new:
        was = before.pop(given.name, None)
        # Unchanged options of a driver that isn't loaded yet compare equal: they take the present resource's driver.
        resource = given
        if was is not None and given.load is not None and given.driver == was.driver:
            same = given.written.get("options") == was.written.get("options")
            resource = given.loaded(was) if same else given
        different = tuple(dict.fromkeys(_KEYS.get(key, key) for key in _differing(was, resource))) if was else ()
        if was is None:
            fate = "added"
        elif resource.failure and resource.load is None and not was.failure:
            fate = "unusable"
        elif not IN_PLACE.issuperset(different) or (different and was.failure):  # a failed one has no driver to keep
            fate = "restarted"
        else:
            fate = "amended" if different else "same"
        found[fate].append(resource)
        if fate in {"restarted", "amended"}:
            keys[resource.name] = different
    fates = {fate: tuple(which) for fate, which in found.items()}
    return Changes(**fates, removed=tuple(before.values()), keys=keys)


def _differing(old: Any, new: Any) -> Iterator[str]:  # noqa: ANN401  two dataclasses of one kind
    for name in [one.name for one in fields(old) if one.compare]:
        try:
            same = bool(getattr(old, name) == getattr(new, name))
        except Exception:  # raised by the driver's own class; a restart is always right
            same = False
        if not same:
            yield name


def restart_keys(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The differing keys outside of resources that take effect at the gateway's next start only."""
    kubelet = (f"kubelet.{key}" for key in _differing(old.kubelet, new.kubelet))
    runtime = (f"runtime.{key}" for key in _differing(old.runtime, new.runtime))
    # Without a DRA driver there was no front so far: it takes the new values.
    dra = ["dra.driver"] if old.dra.driver not in (None, new.dra.driver) else []
    asked = old.dra.driver is not None or old.cluster.events
    cluster = (f"cluster.{key}" for key in _differing(old.cluster, new.cluster) if asked and key != "events")
    return (*kubelet, *runtime, *dra, *cluster, *(["state_dir"] if old.state_dir != new.state_dir else []))


def reload_keys(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The differing keys outside of resources that take effect at the reload."""
    withdraw = ("dra.withdraw",) if old.dra.withdraw != new.dra.withdraw else ()
    events = ("cluster.events",) if old.cluster.events != new.cluster.events else ()
    return (*(("web",) if old.web != new.web else ()), *withdraw, *events)

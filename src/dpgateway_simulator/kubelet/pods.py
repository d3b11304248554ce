"""Pods and their containers, as far as devices go."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Spec = Mapping[str, Mapping[str, int]] | Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Container:
    """A container and its limits of extended resources; `restartable` makes an init container a sidecar."""

    name: str
    resources: Mapping[str, int]
    restartable: bool = False


@dataclass(frozen=True)
class Pod:
    """A pod; its name is its uid, too."""

    name: str
    containers: tuple[Container, ...]
    init: tuple[Container, ...] = ()

    @property
    def all(self) -> tuple[Container, ...]:
        return self.init + self.containers

    def container(self, name: str) -> Container | None:
        return next((one for one in self.all if one.name == name), None)


def containers(spec: Spec) -> tuple[Container, ...]:
    """From {"name": {"x.com/y": 1}} or from container objects as in a pod's manifest."""
    if isinstance(spec, Mapping):
        return tuple(Container(name, dict(resources)) for name, resources in spec.items())
    return tuple(_container(one) for one in spec)


def _container(one: Mapping[str, Any]) -> Container:
    resources = one.get("resources") or {}
    limits = resources.get("limits", resources)
    numbers = {name: int(amount) for name, amount in limits.items()}
    return Container(one["name"], numbers, one.get("restartPolicy") == "Always")

"""Configured resources, and drivers whose methods do what a test says."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from dpgateway import Allocation, Device
from dpgateway.config import ResourceConfig
from dpgateway.config.values import Shares, Timeouts

NAME = "example.com/thing"


def configured(*, timeouts: dict[str, float] | None = None, shares: int | Shares = 1, **changes: Any) -> ResourceConfig:
    """Seconds instead of durations."""
    limits = Timeouts(**{name: timedelta(seconds=value) for name, value in (timeouts or {}).items()})
    for key in ("refresh", "keep_lost"):
        if key in changes:
            changes[key] = timedelta(seconds=changes[key])
    shared = shares if isinstance(shares, Shares) else Shares(shares)
    whole: dict[str, Any] = {"name": NAME, "driver": "scripted", "options": NoOptions(), "shares": shared}
    return ResourceConfig(**{**whole, "timeouts": limits, **changes})


@dataclasses.dataclass(frozen=True)
class NoOptions:
    pass


class Scripted:
    """A good driver with two devices. ``scripted(prepare=..., devices=...)`` replaces or adds methods."""

    Options = NoOptions

    def __init__(self, options: NoOptions, context: Any) -> None:
        self.context = context

    def devices(self) -> Any:
        return [Device("a"), Device("b")]

    def allocate(self, devices: Any) -> Any:
        return Allocation(env={"GOT": ",".join(device.id for device in devices)})


def scripted(**methods: Callable[..., Any]) -> type[Scripted]:
    """The functions get no ``self``."""

    def unbound(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _self, *arguments: function(*arguments)

    return type("Scripted", (Scripted,), {name: unbound(function) for name, function in methods.items()})

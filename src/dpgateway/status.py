"""How the gateway is, as one value. Today only systemd is told of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.plugin import Plugin

LONGEST_START = 60.0
"""Seconds after which the start counts as over, whatever isn't ready: systemd waits 90, unless told otherwise."""
KNOWN_AFTER = 1.0
"""Seconds after a driver's ``list`` deadline at which a failure of the driver is surely known."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One resource."""

    name: str
    started: bool
    """The resource has come as far as it can without a kubelet, or without an operator's help."""
    streaming: bool = False
    """A kubelet listens."""
    failed: bool = False

    @classmethod
    def of(cls, config: ResourceConfig, plugin: Plugin | None, age: float, *, directory: bool) -> Standing:
        """``age``: seconds since the start; ``directory``: whether the kubelet's directory exists."""
        overdue = age >= min(config.timeouts.list.total_seconds() + KNOWN_AFTER, LONGEST_START)
        if plugin is None:
            return cls(config.name, started=overdue)
        failed = bool(plugin.failure)
        listed = plugin.inventory.list.value is not None
        started = failed or ((plugin.served or not directory) and listed) or overdue
        return cls(config.name, started, plugin.registrar.streaming, failed)


@dataclass(frozen=True, slots=True)
class Report:
    """What systemd is told."""

    ready: bool
    text: str


def report(standings: Iterable[Standing], *, kubelet: bool) -> Report:
    """``kubelet``: whether there is one."""
    standings = tuple(standings)
    parts = [f"{len(standings)} resource{'s' if len(standings) != 1 else ''}"]
    parts.append(f"{sum(one.streaming for one in standings)} streaming" if kubelet else "waiting for a kubelet")
    failed = [one.name for one in standings if one.failed]
    if failed:
        parts.append(f"{len(failed)} failed: {failed[0]}{', ...' if len(failed) > 1 else ''}")
    return Report(all(one.started for one in standings), ", ".join(parts))

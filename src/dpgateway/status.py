"""How the gateway is, as one value: what systemd learns of it today."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.plugin import Plugin

LONGEST_START = 60.0
"""Seconds after which the start is over, whatever isn't: systemd waits 90, unless told otherwise."""
KNOWN_AFTER = 1.0
"""Seconds from the ``list`` deadline of a driver to when its failure is surely known."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One resource."""

    name: str
    started: bool
    """It has come as far as it can without a kubelet, or without an operator's help."""
    streaming: bool = False
    """A kubelet listens."""
    failed: bool = False

    @classmethod
    def of(cls, config: ResourceConfig, plugin: Plugin | None, age: float, *, directory: bool) -> Standing:
        """``age``: seconds since the start; ``directory``: whether there is the kubelet's."""
        overdue = age >= min(config.timeouts.list.total_seconds() + KNOWN_AFTER, LONGEST_START)
        if plugin is None:
            return cls(config.name, started=overdue)
        failed = bool(plugin.trouble or plugin.driver.said.value.failure or plugin.inventory.failure)
        listed = plugin.inventory.list.value is not None
        started = failed or ((plugin.served or not directory) and listed) or overdue
        return cls(config.name, started, plugin.registrar.streaming, failed)


@dataclass(frozen=True, slots=True)
class Report:
    """What systemd gets to know."""

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

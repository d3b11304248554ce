"""The gateway in numbers, for metrics: no device is named, so thousands of them are counted in milliseconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dpgateway.deviceplugin.plugin import Plugin
from dpgateway.deviceplugin.registration.standing import Standing
from dpgateway.kit.call_stats import Calls
from dpgateway.kit.log import lost
from dpgateway.node.holders import Holder
from dpgateway.node.holdings import Holdings
from dpgateway.node.node import Node
from dpgateway.resource.offers import Offers
from dpgateway.status.values import Counts, Reloads

UNNAMED = Holder("", "", "")
"""Whoever holds what PodResources doesn't name."""

Moment = float
"""Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ResourceFigures:
    """One resource: how it stands, and what happened since it is served, which begins at nothing with each start."""

    name: str
    driver: str
    standing: Standing = Standing()  # noqa: RUF009  it is frozen
    """Where it stands with the kubelet."""
    attempts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often Register was sent, by API and outcome."""
    failed: bool = False
    """Whether there is nothing that a kubelet could give to a container."""
    listed: Moment | None = None
    """When its driver last listed its devices."""
    counts: Counts = Counts()  # noqa: RUF009  it is frozen
    holders: Mapping[Holder, int] = field(default_factory=dict)
    """How many ids each container has."""
    updates: int = 0
    """How often its list has changed."""
    losses: int = 0
    """How many ids were lost."""
    returns: int = 0
    """How many of these came back."""
    rpcs: Mapping[str, Calls] = field(default_factory=dict)
    calls: Mapping[str, Calls] = field(default_factory=dict)
    """Its driver's."""
    preparing: int = 0
    """How many preparations are under way."""
    outdated: int = 0
    """How many ids are held by containers that can't be started again."""


@dataclass(frozen=True, slots=True)
class KubeletFigures:
    """The kubelet of this node."""

    there: bool
    appearances: int
    asked: Mapping[str, int]
    """How often it was asked which pods have what, by outcome."""
    answered: Moment | None
    """When it last said so."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it."""

    version: str
    reloads: Reloads
    kubelet: KubeletFigures
    lost_lines: int
    resources: tuple[ResourceFigures, ...]


class Resource:
    """The figures of one resource. They are made again only when something that they show is another one, because most
    scrapes find what the one before them found.
    """

    def __init__(self, name: str) -> None:
        self._seen: tuple[object, ...] = ()
        self._figures = ResourceFigures(name, "")

    def look(self, driver: str, plugin: Plugin | None, holdings: Holdings) -> ResourceFigures:
        """``plugin``: None until it is made."""
        if plugin is None:
            return ResourceFigures(self._figures.name, driver)
        calls, offers, ledger = plugin.driver.calls, plugin.inventory.list, plugin.inventory.ledger
        seen = (
            plugin.registrar.standing.value,
            plugin.registrar.attempts,
            plugin.driver.said.value,
            plugin.failure,
            plugin.rpcs.read(),
            calls and (calls.stats.read(), calls.preparing.running),
            offers.version,
            offers.value,
            ledger.losses,
            ledger.returns,
            holdings,
            plugin.outdated,
        )
        if seen != self._seen:
            self._seen, self._figures = seen, _made(self._figures.name, driver, plugin, holdings)
        return self._figures


def _made(name: str, driver: str, plugin: Plugin, holdings: Holdings) -> ResourceFigures:
    used, ledger, calls = holdings.last_known, plugin.inventory.ledger, plugin.driver.calls
    return ResourceFigures(
        name,
        driver,
        plugin.registrar.standing.value,
        plugin.registrar.attempts,
        bool(plugin.failure),
        _moment(plugin.driver.said.value.listed),
        counts(plugin.inventory.list.value or {}, used, ledger.lost),
        {who or UNNAMED: count for who, count in Counter(map(holdings.listed.get, used)).items()},
        plugin.inventory.list.version,
        ledger.losses,
        ledger.returns,
        plugin.rpcs.read(),
        calls.stats.read() if calls is not None else {},
        calls.preparing.running if calls is not None else 0,
        len(plugin.outdated),
    )


def figures(version: str, reloads: Reloads, node: Node, resources: tuple[ResourceFigures, ...]) -> Figures:
    asking = node.asking
    kubelet = KubeletFigures(node.kubelet, node.appearances, dict(asking.asked), _moment(asking.answered))
    return Figures(version, reloads, kubelet, lost(), resources)


def counts(offers: Offers, used: Iterable[str], lost: Iterable[str]) -> Counts:
    """``used``, ``lost``: ids that containers may use, and that are listed though they are gone."""
    healthy = sum([offer.health.reason is None for offer in offers.values()])
    held = [offers[id_].health.ok for id_ in used if id_ in offers]
    gone = sum(id_ in offers for id_ in lost)
    return Counts(len(offers), healthy, len(offers) - healthy, len(held), healthy - sum(held), gone)


def _moment(seconds: float | None) -> Moment | None:
    """``seconds``: of the monotonic clock. To a tenth, because the two clocks are read one after the other, and what
    stays the same is to look the same.
    """
    return None if seconds is None else round(time.time() - (time.monotonic() - seconds), 1)

"""The gateway in numbers, for metrics: no device is named, so thousands of them are counted in milliseconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dpgateway.deviceplugin.plugin import Plugin
from dpgateway.model import Offers
from dpgateway.node.holders import Holder
from dpgateway.node.holdings import Holdings
from dpgateway.node.node import Node
from dpgateway.process.log import lost
from dpgateway.process.tally import Calls
from dpgateway.status.values import Counts, Reloads, Standing

UNNAMED = Holder("", "", "")
"""Whoever holds what PodResources doesn't name."""

Moment = float
"""Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ResourceFigures:
    """One resource: how it stands, and what happened since it is served, which begins at nothing with each start."""

    standing: Standing
    driver: str
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
    registrations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By API and outcome."""
    rpcs: Mapping[str, Calls] = field(default_factory=dict)
    calls: Mapping[str, Calls] = field(default_factory=dict)
    """Its driver's."""
    preparing: int = 0
    """How many preparations are under way."""

    @property
    def name(self) -> str:
        return self.standing.name


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


class Ids:
    """The ids of one resource in numbers. They are counted again only when its list, or who holds what of it, is
    another one, because most scrapes find what the one before them found.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.holders: Mapping[Holder, int] = {}
        self._offers: Offers | None = None
        self._holdings: Holdings | None = None

    def look(self, plugin: Plugin, holdings: Holdings) -> None:
        offers = plugin.inventory.list.value
        if offers is self._offers and holdings is self._holdings:
            return
        used = holdings.last_known
        self.counts = counts(offers or {}, used, plugin.inventory.ledger.lost)
        self.holders = {who or UNNAMED: count for who, count in Counter(map(holdings.listed.get, used)).items()}
        self._offers, self._holdings = offers, holdings


def figures(version: str, reloads: Reloads, node: Node, resources: Iterable[ResourceFigures]) -> Figures:
    asking = node.asking
    kubelet = KubeletFigures(node.kubelet, node.appearances, dict(asking.asked), _moment(asking.answered))
    return Figures(version, reloads, kubelet, lost(), tuple(resources))


def resource(driver: str, standing: Standing, plugin: Plugin | None, holdings: Holdings, ids: Ids) -> ResourceFigures:
    """``ids``: those of this resource, as they were counted last."""
    if plugin is None:
        return ResourceFigures(standing, driver)
    ids.look(plugin, holdings)
    ledger, calls = plugin.inventory.ledger, plugin.driver.calls
    return ResourceFigures(
        standing,
        driver,
        _moment(plugin.driver.said.value.listed),
        ids.counts,
        ids.holders,
        plugin.inventory.list.version,
        ledger.losses,
        ledger.returns,
        dict(plugin.registrar.attempts),
        plugin.rpcs.read(),
        calls.tally.read() if calls is not None else {},
        calls.preparing.running if calls is not None else 0,
    )


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

"""The gateway in numbers, for metrics. Devices are counted, not listed: thousands take milliseconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.values import FRONT
from dpgateway.kit.call_stats import Calls
from dpgateway.resource.front import InUse
from dpgateway.resource.fronted import OnFront
from dpgateway.resource.published import DraFigures
from dpgateway.resource.shares import Offers
from dpgateway.resource.standing import Standing
from dpgateway.status.values import Counts, Reloads, unserved


class HolderLabels(NamedTuple):
    """What is known of who holds an id; empty texts for what isn't."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    claim: str = ""
    """By DRA the claim that has the id: which containers of its pods use it isn't known."""


Moment = float
"""Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ResourceFigures:
    """One resource: its state, and counters since it is served. They restart from zero with the resource."""

    name: str
    driver: str
    registrations: tuple[Standing, ...] = (unserved(FRONT),)
    attempts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Numbers of attempted registrations, by API and outcome."""
    failed: bool = False
    """Whether the resource has no device that a kubelet could allocate."""
    listed: Moment | None = None
    """When its driver last listed its devices."""
    counts: Counts = Counts()  # noqa: RUF009  it is frozen
    taken: int = 0
    """Ids that are Unhealthy only because their hardware is in use under another name."""
    holders: Mapping[HolderLabels, int] = field(default_factory=dict)
    """Numbers of ids, by holder."""
    updates: int = 0
    """Changes of its list."""
    falls: int = 0
    """Changes of its devices from Healthy to Unhealthy, by a fault of theirs."""
    losses: int = 0
    """Ids that were lost."""
    returns: int = 0
    """Lost ids that came back."""
    rpcs: Mapping[str, Calls] = field(default_factory=dict)
    calls: Mapping[str, Calls] = field(default_factory=dict)
    """Calls of its driver, by method."""
    preparing: int = 0
    """Preparations under way."""
    outdated: int = 0
    """The number of ids held by containers that can't restart."""

    @property
    def streaming(self) -> bool | None:
        """Whether the present kubelet listens to its list; None if it has none for kubelets, but slices."""
        listing = [one for one in self.registrations if one.front == FRONT]
        return any(one.streaming for one in listing) if listing else None


@dataclass(frozen=True, slots=True)
class KubeletFigures:
    """The kubelet of this node."""

    there: bool
    appearances: int
    asked: Mapping[str, int]
    """Requests to PodResources, by outcome."""
    answered: Moment | None
    """The time of the last successful one."""


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The API server, if it is asked at all."""

    up: bool | None = None
    """Whether the last request got an answer; None before the first."""
    requests: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Numbers of requests, by verb, plural of the kind, and status or ``none``."""
    events: Mapping[str, int] = field(default_factory=dict)
    """Numbers of Kubernetes events, by outcome; empty if none are to be written."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All numbers at one moment."""

    version: str
    reloads: Reloads
    kubelet: KubeletFigures
    lost_lines: int
    resources: tuple[ResourceFigures, ...]
    cluster: ClusterFigures = ClusterFigures()
    dra: DraFigures | None = None


def resource(config: ResourceConfig, plugin: OnFront | None, others: Iterable[InUse] = ()) -> ResourceFigures:
    """``plugin``: None until it is made; ``others``: what the other front gave of it."""
    name, driver = config.name, config.driver
    if plugin is None:
        return ResourceFigures(name, driver, (unserved(config.on),))
    holdings = plugin.resource.inventory.usage.value
    holder = {id_: _holder(one, id_) for one in (*others, holdings) for id_ in one.last_known}
    used, ledger, lanes = frozenset(holder), plugin.resource.inventory.ledger, plugin.resource.driver.lanes
    listed = plugin.resource.inventory.list.value or {}
    return ResourceFigures(
        name,
        driver,
        (plugin.standing.value,),
        plugin.attempts,
        bool(plugin.resource.failure),
        moment(plugin.resource.driver.state.value.listed_at),
        counts(listed, used, ledger.lost),
        sum([offer.taken for offer in listed.values()]),
        Counter(holder.values()),
        plugin.resource.inventory.list.version,
        plugin.resource.list_log.falls,
        ledger.losses,
        ledger.returns,
        plugin.rpcs.read(),
        lanes.stats.read() if lanes is not None else {},
        lanes.preparing.running if lanes is not None else 0,
        len(plugin.outdated.value),
    )


def _holder(in_use: InUse, id_: str) -> HolderLabels:
    if (container := in_use.container(id_)) is not None:
        return HolderLabels(*container)
    found = [one for one in in_use.holders(id_) if one.claim]
    claims = {(one.namespace or "", one.claim or "") for one in found}
    if len(claims) != 1:
        return HolderLabels()
    ((namespace, claim),) = claims
    return HolderLabels(namespace, (found[0].pod or "") if len(found) == 1 else "", claim=claim)


def counts(offers: Offers, used: Iterable[str], lost: Iterable[str]) -> Counts:
    """``used``: ids that containers may use; ``lost``: listed ids whose device or share is gone."""
    healthy = sum([offer.health.reason is None for offer in offers.values()])
    held = [offers[id_].health.ok for id_ in used if id_ in offers]
    gone = sum(id_ in offers for id_ in lost)
    return Counts(len(offers), healthy, len(offers) - healthy, len(held), healthy - sum(held), gone)


def moment(seconds: float | None) -> Moment | None:
    """Converts seconds of the monotonic clock. Rounded to a tenth: the two clocks are read one after the other, and
    an unchanged moment should convert to the same value.
    """
    return None if seconds is None else round(time.time() - (time.monotonic() - seconds), 1)

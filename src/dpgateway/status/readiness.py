"""Whether the present kubelet has each resource, and devices of it, as far as the gateway can bring that about.

It says so to those who act on it: a rollout gives an old gateway up that isn't ready. So what passes by itself is no
cause: a kubelet that starts again, or a driver that begins anew, has DAMPED seconds before it counts. That isn't given
to a resource that has never been ready, because the start of a gateway is over when it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpgateway.status.values import Standing, Time

DAMPED = 10.0
"""Seconds for which what was ready counts as ready still, since it isn't, or since the kubelet is new."""

NO_KUBELET = "there is no kubelet.sock"


class Record:
    """What one resource was until now, however often it began anew."""

    def __init__(self) -> None:
        self._served = False
        self._since: float | None = None
        self._healthy = self._had_devices = False

    @property
    def deprived(self) -> bool:
        """Whether it had a Healthy device, and has none now."""
        return self._had_devices and not self._healthy

    def note(self, now: float, *, listed: bool, healthy: bool, failed: bool) -> None:
        """How it is. ``now``: in seconds of the monotonic clock; ``listed``: whether the kubelet has its list."""
        self._healthy = healthy
        self._had_devices = self._had_devices or healthy
        if listed and not (failed and self.deprived):
            self._served, self._since = True, None
        elif self._since is None:
            self._since = now

    def passing(self, now: float, kubelet_since: float) -> bool:
        """Whether it was ready until a moment ago, or the kubelet is new. ``kubelet_since``: when that came or went."""
        return self._served and (self._since is None or now < max(self._since, kubelet_since) + DAMPED)


@dataclass(frozen=True, slots=True)
class Past:
    """What the resources were until now, by their names."""

    ready: frozenset[str] = frozenset()
    """Until a moment ago."""
    deprived: frozenset[str] = frozenset()
    """They had Healthy devices, and have none now."""
    kubelet: bool = False
    """Whether there was a kubelet until a moment ago."""


@dataclass(frozen=True, slots=True)
class ResourceReadiness:
    """Whether the present kubelet has one resource's list, and why not."""

    name: str
    ready: bool
    reason: str | None
    """Also of one that counts as ready for a moment."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the present kubelet has the list of each resource."""

    ready: bool
    kubelet: bool
    """Whether there is a kubelet."""
    reason: str | None
    resources: tuple[ResourceReadiness, ...]
    lingers: Time | None = None
    """Until when it serves on at most, though it was told to end."""


def readiness(
    standings: Iterable[Standing], *, kubelet: bool, past: Past | None = None, lingers: Time | None = None
) -> Readiness:
    """``kubelet``: whether there is one."""
    past = past or Past()
    resources = []
    for one in standings:
        reason = unready(one, kubelet=kubelet, deprived=one.name in past.deprived)
        resources.append(ResourceReadiness(one.name, reason is None or one.name in past.ready, reason))
    names = [one.name for one in resources if not one.ready]
    there = kubelet or past.kubelet
    reason = NO_KUBELET if not there else f"not ready: {', '.join(names)}" if names else None
    return Readiness(there and not names, kubelet, reason, tuple(resources), lingers)


def unready(standing: Standing, *, kubelet: bool, deprived: bool = False) -> str | None:
    """Why the kubelet hasn't got its list, or no device any more; None if it has. ``kubelet``: whether there is one;
    ``deprived``: whether the resource had a Healthy device, and has none now. If its driver says so, it is ready: that
    is hardware, which no other gateway would find either.
    """
    registration = standing.registration
    if registration.streaming and registration.listed:
        taken = standing.failure if deprived else None
        return f"no device is Healthy any more: {taken.reason}" if taken else registration.failure
    if registration.streaming:
        return "the kubelet has asked for its list, which isn't sent yet"
    if not kubelet:
        return NO_KUBELET
    return registration.failure or _unregistered(standing)


def _unregistered(standing: Standing) -> str:
    if standing.registration.registered:
        return "the kubelet accepted its registration, but hasn't asked for its list yet"
    return f"not registered: {standing.failure.reason}" if standing.failure else "not registered yet"

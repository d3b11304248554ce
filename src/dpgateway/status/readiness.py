"""Whether the present kubelet has each resource, as far as the gateway can bring that about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpgateway.status.values import Standing

NO_KUBELET = "there is no kubelet.sock"


@dataclass(frozen=True, slots=True)
class ResourceReadiness:
    """Whether the present kubelet has one resource's list, and why not."""

    name: str
    ready: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the present kubelet has the list of each resource."""

    ready: bool
    kubelet: bool
    """Whether there is a kubelet."""
    reason: str | None
    resources: tuple[ResourceReadiness, ...]


def readiness(standings: Iterable[Standing], *, kubelet: bool) -> Readiness:
    """``kubelet``: whether there is one."""
    resources = tuple([_resource(one, kubelet=kubelet) for one in standings])
    unready = [one.name for one in resources if not one.ready]
    reason = f"not ready: {', '.join(unready)}" if unready else None
    return Readiness(kubelet and not unready, kubelet, reason if kubelet else NO_KUBELET, resources)


def _resource(standing: Standing, *, kubelet: bool) -> ResourceReadiness:
    reason = unready(standing, kubelet=kubelet)
    return ResourceReadiness(standing.name, reason is None, reason)


def unready(standing: Standing, *, kubelet: bool) -> str | None:
    """Why the kubelet hasn't got its list; None if it has. ``kubelet``: whether there is one."""
    registration = standing.registration
    if registration.streaming:
        return None if registration.listed else "the kubelet has asked for its list, which isn't sent yet"
    if not kubelet:
        return NO_KUBELET
    if registration.failure:
        return registration.failure
    if registration.registered:
        return "the kubelet accepted its registration, but hasn't asked for its list yet"
    if standing.failure:
        return f"not registered: {standing.failure.reason}"
    return "not registered yet"

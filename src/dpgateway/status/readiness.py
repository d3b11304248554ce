"""Readiness: whether the present kubelet has each resource's list, with devices on it.

A rollout ends the old gateway once the new one is ready, so a passing state must not flip readiness: a resource that
was ready stays ready for DAMPED seconds when the kubelet or the resource's driver restarts. A resource that was never
ready isn't damped, because readiness marks the end of a gateway's start.

systemd gets a separate report: there a gateway is ready once each resource has come as far as it can.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpgateway.resource.standing import Standing
from dpgateway.status.values import Failure, RefusedReload, ResourceStatus, Time

DAMPED = 10.0
"""Seconds for which a resource still counts as ready after its last ready moment, or after the kubelet appeared."""

NO_KUBELET = "there is no kubelet.sock"


class History:
    """A resource's past as far as readiness depends on it, across restarts of the resource.

    ``_was_listed``: some kubelet has had the list. ``_unlisted_since``: when the kubelet lost it; None while it has
    it. ``_had_devices``: the list has had a Healthy device.
    """

    def __init__(self) -> None:
        self._was_listed = False
        self._unlisted_since: float | None = None
        self._had_devices = False

    def note(self, now: float, *, listed: bool, had_devices: bool) -> None:
        """Records a change of the registration. ``now``: in monotonic seconds; ``listed``: whether the kubelet has the
        list; ``had_devices``: whether the list ever had a Healthy device.
        """
        self._had_devices = self._had_devices or had_devices
        if listed:
            self._was_listed, self._unlisted_since = True, None
        elif self._unlisted_since is None:
            self._unlisted_since = now

    def deprived(self, *, had_devices: bool, healthy: bool) -> bool:
        """Whether the resource had a Healthy device and has none now."""
        return (self._had_devices or had_devices) and not healthy

    def passing(self, now: float, kubelet_since: float, deprived_since: float | None = None) -> bool:
        """Whether the resource was ready less than DAMPED seconds ago, or the kubelet is that new. ``kubelet_since``:
        when the kubelet appeared or vanished; ``deprived_since``: when the driver's failure took the Healthy devices
        away.
        """
        since = min((moment for moment in (self._unlisted_since, deprived_since) if moment is not None), default=None)
        return self._was_listed and (since is None or now < max(since, kubelet_since) + DAMPED)


@dataclass(frozen=True, slots=True)
class Past:
    """The past of all resources."""

    ready: frozenset[str] = frozenset()
    """The names of resources that still count as ready."""
    deprived: frozenset[str] = frozenset()
    """The names of resources that lost their last Healthy device."""
    kubelet: bool = False
    """Whether a kubelet still counts as there."""


@dataclass(frozen=True, slots=True)
class ResourceReadiness:
    """Whether the present kubelet has the resource's list, and why not."""

    name: str
    ready: bool
    reason: str | None
    """Set also while the resource is unready but damped."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the present kubelet has the list of each resource."""

    ready: bool
    kubelet: bool
    """Whether there is a kubelet."""
    reason: str | None
    resources: tuple[ResourceReadiness, ...]
    lingers: Time | None = None
    """The latest end of a lingering gateway."""


def readiness(
    resources: Iterable[ResourceStatus],
    *,
    kubelet: bool,
    past: Past | None = None,
    lingers: Time | None = None,
    refusal: RefusedReload | None = None,
) -> Readiness:
    """``kubelet``: whether there is one; ``refusal``: the refused configuration, if any, which is the reason of a
    gateway that is ready: the kubelet has what is served instead.
    """
    past = past or Past()
    found = []
    for one in resources:
        deprived = one.name in past.deprived
        reasons = (why_unready(it, one.failure, kubelet=kubelet, deprived=deprived) for it in one.registrations)
        reason = next((why for why in reasons if why is not None), None)  # each of its fronts must be ready
        found.append(ResourceReadiness(one.name, reason is None or one.name in past.ready, reason))
    names = [one.name for one in found if not one.ready]
    there = kubelet or past.kubelet
    reason = NO_KUBELET if not there else f"not ready: {', '.join(names)}" if names else refused(refusal) or None
    return Readiness(there and not names, kubelet, reason, tuple(found), lingers)


def refused(refusal: RefusedReload | None) -> str:
    return "" if refusal is None else f"the configuration is refused, and {refusal.served}"


def why_unready(one: Standing, failure: Failure | None, *, kubelet: bool, deprived: bool = False) -> str | None:
    """Why one registration isn't ready; None if it is. ``failure``: why the resource has no device to allocate;
    ``kubelet``: whether there is one; ``deprived``: whether the resource had a Healthy device and has none now.
    """
    if one.streaming and one.listed:
        # Unhealthy hardware isn't a reason: another gateway would find the same.
        return f"no device is Healthy any more: {failure.reason}" if failure and deprived else one.failure
    if one.streaming:
        return "the kubelet has asked for its list, which isn't sent yet"
    if not kubelet:
        return NO_KUBELET
    if one.failure:
        return one.failure
    if one.registered:  # by DRA it is ready then
        return "the kubelet accepted its registration, but hasn't asked for its list yet"
    return f"not registered: {failure.reason}" if failure else "not registered yet"


# systemd


@dataclass(frozen=True, slots=True)
class Report:
    """The report to systemd: READY and STATUS of sd_notify(3)."""

    ready: bool
    text: str


def report(resources: Iterable[ResourceStatus], refusal: RefusedReload | None = None, *, kubelet: bool) -> Report:
    """The report. ``kubelet``: whether there is one; ``refusal``: the refused configuration, if any."""
    resources = tuple(resources)
    parts = [f"{len(resources)} resource{'s' if len(resources) != 1 else ''}"]
    streaming = sum(any(registration.streaming for registration in one.registrations) for one in resources)
    parts.append(f"{streaming} streaming" if kubelet else "waiting for a kubelet")
    failed = [one.name for one in resources if one.failure]
    if failed:
        parts.append(f"{len(failed)} failed: {failed[0]}{', ...' if len(failed) > 1 else ''}")
    return Report(all(one.started for one in resources), ", ".join(filter(None, (*parts, refused(refusal)))))

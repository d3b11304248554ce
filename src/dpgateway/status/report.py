"""What systemd is told of the gateway: it follows from how each resource stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpgateway.status.values import RefusedReload, ResourceStatus


@dataclass(frozen=True, slots=True)
class Report:
    """What systemd is told."""

    ready: bool
    text: str


def report(resources: Iterable[ResourceStatus], refusal: RefusedReload | None = None, *, kubelet: bool) -> Report:
    """``kubelet``: whether there is one; ``refusal``: of the last change of the configuration."""
    resources = tuple(resources)
    parts = [f"{len(resources)} resource{'s' if len(resources) != 1 else ''}"]
    streaming = sum(any(registration.streaming for registration in one.registrations) for one in resources)
    parts.append(f"{streaming} streaming" if kubelet else "waiting for a kubelet")
    failed = [one.name for one in resources if one.failure]
    if failed:
        parts.append(f"{len(failed)} failed: {failed[0]}{', ...' if len(failed) > 1 else ''}")
    if refusal is not None:
        parts.append("the new configuration is refused")
    return Report(all(one.started for one in resources), ", ".join(parts))

"""What systemd is told of the gateway: it follows from how each resource stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpgateway.status.values import Refusal, Standing


@dataclass(frozen=True, slots=True)
class Report:
    """What systemd is told."""

    ready: bool
    text: str


def report(standings: Iterable[Standing], refusal: Refusal | None = None, *, kubelet: bool) -> Report:
    """``kubelet``: whether there is one; ``refusal``: of the last change of the configuration."""
    standings = tuple(standings)
    parts = [f"{len(standings)} resource{'s' if len(standings) != 1 else ''}"]
    streaming = sum(one.registration.streaming for one in standings)
    parts.append(f"{streaming} streaming" if kubelet else "waiting for a kubelet")
    failed = [one.name for one in standings if one.failure]
    if failed:
        parts.append(f"{len(failed)} failed: {failed[0]}{', ...' if len(failed) > 1 else ''}")
    if refusal is not None:
        parts.append("the new configuration is refused")
    return Report(all(one.started for one in standings), ", ".join(parts))

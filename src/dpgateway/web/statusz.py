"""``/statusz``: the status as text, in the form of Kubernetes' components.

The head has the fields of KEP-4827 (k8s.io/component-base/zpages/statusz): name, warning, start, uptime, versions,
paths. The rest is ours.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from datetime import datetime

from dpgateway.errors import printable
from dpgateway.status import ResourceStatus, Status

MOST_EVENTS = 50
WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)


def lines(status: Status, paths: Iterable[str]) -> Iterator[str]:
    """The lines with their ends. All other characters are printable."""
    return (f"{printable(line)}\n" for line in _lines(status, paths))


def _lines(status: Status, paths: Iterable[str]) -> Iterator[str]:
    yield from ("", "dpgateway statusz", WARNING, "")
    since = datetime.fromisoformat(status.gateway.since)
    seconds = int((datetime.fromisoformat(status.time) - since).total_seconds())
    yield f"Started: {since:%a %b %e %H:%M:%S UTC %Y}"
    yield f"Up: {seconds // 3600} hr {seconds // 60 % 60:02} min {seconds % 60:02} sec"
    yield f"Python version: {platform.python_version()}"
    yield f"Binary version: {status.gateway.version}"
    yield f"Paths: {' '.join(sorted(paths))}"
    yield f"Node: {status.gateway.node}"
    kubelet = status.kubelet
    spoken = f", speaks {kubelet.api}" if kubelet.api else ""
    yield f"Kubelet: {f'there{spoken}' if kubelet.there else 'none'}, since {kubelet.since}"
    if (dra := status.dra) is not None:
        slices, one = dra.slices, dra.registration
        yield f"DRA driver: {dra.driver}, {one.state} since {one.since}"
        right = "as they should be" if slices.right else "not as they should be"
        yield f"Slices: {slices.count}, with devices: {slices.devices}, {right}"
        yield f"API server: {dra.api_server.url}"
        for switch in dra.switches:
            text = f"{switch.state} since {switch.since}, {switch.because}"
            waits = f"; waits for {switch.waits_for}" if switch.waits_for else ""
            yield f"Front of {', '.join(switch.resources)}: {text}{waits}"
        for claim in dra.claims:
            given = "; ".join(f"{part.resource}: {', '.join(part.ids or part.devices)}" for part in claim.given)
            pods = f" for pod {', '.join(claim.pods)}" if claim.pods else ""
            yield f"Claim: {claim.namespace}/{claim.name}{pods}, {claim.phase}, has {given}"
    yield from ("", "Troubles:" if status.troubles else "Troubles: none")
    for it in status.troubles:
        about, advice = f"{it.resource}: " if it.resource else "", f"; {it.advice}" if it.advice else ""
        began = f" (since {it.since})" if it.since else ""
        yield f"  {it.level}: {about}{it.reason}{began}{advice}"
    yield from ("", "Resources:")
    for resource in status.resources:
        yield from _resource(resource)
    yield from ("", f"Events, the last {MOST_EVENTS}:")
    for event in status.events[-MOST_EVENTS:]:
        about = " ".join(filter(None, (event.resource, ",".join(event.devices))))
        yield f"  {event.time} {event.level:<7} {event.message}{about and f' ({about})'}"


def _resource(one: ResourceStatus) -> Iterator[str]:
    counts = one.counts
    numbers = f"{counts.free} free, {counts.held} held, {counts.unhealthy} unhealthy of {counts.listed}"
    states = ", ".join(registration.state for registration in one.registrations)
    yield f"  {one.name}: {numbers}; {states}, driver {one.driver.name}"
    for device in one.devices:  # a resource may have thousands that are healthy and free
        if device.healthy and not device.held:
            continue
        parts = [device.id]
        if not device.healthy:
            parts.append(f"Unhealthy{f' since {device.since}' if device.since else ''}: {device.reason}")
        elif device.reason:
            parts.append(device.reason)
        if device.held:
            parts.append(f"held by {', '.join(map(str, device.holders)) or 'a container'}")
        yield f"    {', '.join(parts)}"

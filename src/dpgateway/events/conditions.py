"""What there is to say of each object now, from the status.

A pod is told of each device that it holds; the Node of each resource. What isn't known isn't said: a resource that has
no list yet, one that another gateway serves, a holder whose pod has no name (checkpoint without PodResources).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from dpgateway.status.readiness import why_unready
from dpgateway.status.values import DeviceStatus, ResourceStatus

Reason = Literal[
    "DeviceUnhealthy",
    "DeviceGone",
    "DeviceAtRisk",
    "DeviceHealthy",
    "ResourceFailed",
    "ResourceUnregistered",
    "ResourceServed",
]
"""The reason of an event. docs/how-to/read-events.md describes each."""
GOOD: frozenset[Reason] = frozenset({"DeviceHealthy", "ResourceServed"})

KEPT = "The container keeps it, other pods don't get it. If it doesn't recover, delete the pod"
RESTARTED = "A container that starts again would run without it: delete the pod"
ANOTHER = "its successor gets another device"
LOOK = "`dpgateway status` on the node says more"
_NONE: Mapping[str, str] = MappingProxyType({})


class Subject(NamedTuple):
    """A pod and one of its devices; or the node and one of its resources."""

    namespace: str
    """Empty: the node."""
    name: str
    uid: str
    """As ``kubectl describe`` asks for it; empty if it is unknown."""
    resource: str
    device: str
    """The driver's id; empty: the whole resource."""


class Condition(NamedTuple):
    """What there is to say of a subject."""

    reason: Reason
    note: str
    """The same as long as nothing changes: no times, no counts."""

    @property
    def good(self) -> bool:
        return self.reason in GOOD


def conditions(
    node: str, resources: Iterable[ResourceStatus], *, kubelet: bool, at_risk: Mapping[str, str] = _NONE
) -> dict[Subject, Condition]:
    """``kubelet``: whether there is one; ``at_risk``: why containers of claims' pods would start without their devices,
    by resource.
    """
    found: dict[Subject, Condition] = {}
    for one in resources:
        if one.elsewhere is not None:
            continue
        # The kubelet's events of a node have its name in place of its uid, and kubectl describe asks for that.
        if kubelet and (said := _of_resource(one)) is not None:
            found[Subject("", node, node, one.name, "")] = said
        for device in one.devices:
            for holder in device.holders if device.held else ():
                if not holder.namespace or not holder.pod:
                    continue
                subject = Subject(holder.namespace, holder.pod, holder.pod_uid or "", one.name, device.device)
                said = _of_device(one.name, device)
                if said.good and holder.claim is not None and one.name in at_risk:
                    text = f"device {device.device} of {one.name} came by DRA, and {at_risk[one.name]}. {RESTARTED}"
                    said = Condition("DeviceAtRisk", text)
                # Several shares of a device are one device to the pod: the worse of them counts.
                if subject not in found or found[subject].good:
                    found[subject] = said
    return found


def _of_resource(one: ResourceStatus) -> Condition | None:
    name = one.name
    failure = one.failure.reason if one.failure is not None else one.driver.failure
    if failure is not None:
        text = f"{name} fails on this node: {failure}. Pods get no device of it here; what they hold is kept. {LOOK}"
        return Condition("ResourceFailed", text)
    if one.driver.listed is None:
        return None
    missing = [front for front in one.registrations if not front.listed]
    if (reason := next((it.failure or why_unready(it, None, kubelet=True) for it in missing), None)) is not None:
        return Condition("ResourceUnregistered", f"{name} isn't offered to pods on this node: {reason}. {LOOK}")
    return Condition("ResourceServed", f"{name} is served on this node again")


def _of_device(resource: str, device: DeviceStatus) -> Condition:
    which = f"device {device.device} of {resource}"
    if device.lost:
        why = device.reason or "the driver doesn't list it any more"
        return Condition("DeviceGone", f"{which} is gone: {why}. Plug it in again, or delete the pod: {ANOTHER}")
    # Without a time it is another name of the same hardware that is in use, or none is known.
    if not device.healthy and device.since is not None:
        why = device.reason or "no reason is given"
        return Condition("DeviceUnhealthy", f"{which} is Unhealthy: {why}. {KEPT}: {ANOTHER}")
    return Condition("DeviceHealthy", f"{which} is Healthy again")

"""The reported capacity of the node, the devices of a container, and the device manager's whole view."""

import re
from collections.abc import Container
from typing import Any

from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.endpoint import PluginEndpoint
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.ledger import DeviceLedger


def capacity(incarnation: Incarnation, connections: PluginConnections) -> dict[str, Any]:
    """GetCapacity. It also forgets each resource whose plugin has been gone for longer than the grace period."""
    healthy, grace = incarnation.ledger.healthy, incarnation.behaviour.grace
    if grace is None:  # 1.8 leaves out zeros (cm/container_manager_linux.go)
        counts = {resource: len(ids) for resource, ids in healthy.items() if ids}
        return {"capacity": counts, "allocatable": dict(counts), "removed": []}
    removed = _forget(incarnation, connections, grace)

    # From 1.10 on capacity includes Unhealthy devices; before, they vanish from both counts.
    allocatable = {resource: len(ids) for resource, ids in healthy.items()}
    total = dict(allocatable)
    if not incarnation.behaviour.hides_unhealthy:
        for resource, ids in incarnation.ledger.unhealthy.items():
            total[resource] = total.get(resource, 0) + len(ids)
    return {"capacity": total, "allocatable": allocatable, "removed": removed}


def _forget(incarnation: Incarnation, connections: PluginConnections, grace: float) -> list[str]:
    now, removed = incarnation.now(), []
    for resource in sorted(incarnation.ledger.healthy.keys() | incarnation.ledger.unhealthy.keys()):
        endpoint = connections.endpoints.get(resource)
        if endpoint is None or endpoint.expired(now, grace):
            connections.endpoints.pop(resource, None)
            incarnation.ledger.forget(resource)
            removed.append(resource)
    if removed:
        incarnation.save()
        incarnation.emit("resources removed", resources=tuple(removed))
    return removed


def resources(incarnation: Incarnation, connections: PluginConnections, pods: Container[str]) -> dict[str, Any]:
    """Every resource's plugin, counts, devices and holders now. Unlike `capacity` it forgets nothing."""
    ledger = incarnation.ledger
    names = ledger.healthy.keys() | ledger.unhealthy.keys() | ledger.allocated.keys()
    return {name: _resource(ledger, name, connections.endpoints.get(name), pods) for name in sorted(names)}


def _resource(ledger: DeviceLedger, name: str, endpoint: PluginEndpoint | None, pods: Container[str]) -> dict[str, Any]:
    healthy, unhealthy = ledger.healthy.get(name, set()), ledger.unhealthy.get(name, set())
    known, holders = ledger.known.get(name, {}), _holders(ledger, name, pods)
    found = []
    for device in sorted(healthy | unhealthy | holders.keys(), key=natural):
        health = "Healthy" if device in healthy else "Unhealthy" if device in unhealthy else "gone"
        numa = (known[device].nodes if device in known else None) or ()
        found.append({"id": device, "health": health, "numa": list(numa), "holders": holders.get(device, [])})
    stopped = endpoint is None or endpoint.plugin is None or endpoint.stopped_at is not None
    return {
        "plugin": "none" if endpoint is None else "gone" if stopped else "connected",
        "capacity": len(healthy) + (0 if ledger.hides_unhealthy else len(unhealthy)),
        "allocatable": len(healthy),
        "devices": found,
    }


def _holders(ledger: DeviceLedger, resource: str, pods: Container[str]) -> dict[str, list[str]]:
    """Holders by device. A deleted pod holds its devices until the next admission (updateAllocatedDevices)."""
    holders: dict[str, list[str]] = {}
    for one in ledger.holdings.values():
        gone = "" if one.pod in pods else " (deleted)"
        for device in one.ids if one.resource == resource else ():
            holders.setdefault(device, []).append(f"{one.pod}/{one.container}{gone}")
    return holders


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key under which d10 comes after d9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", text)]


def devices(incarnation: Incarnation, pod: str, container: str) -> dict[str, Any]:
    """A container's ids, all healthy devices, and the container's `allocatedResourcesStatus` (from 1.31 on)."""
    ledger = incarnation.ledger
    holdings = ledger.of_container(pod, container)
    allocatable = {
        resource: {device: _device(ledger, resource, device) for device in sorted(ids)}
        for resource, ids in ledger.healthy.items()
    }
    held: dict[str, Any] = {one.resource: {device: {} for device in sorted(one.ids)} for one in holdings}
    answer: dict[str, Any] = {"container": held, "allocatable": allocatable}
    if incarnation.behaviour.resource_status:
        answer["status"] = [{"name": container, "allocatedResourcesStatus": _status(ledger, held)}]
    return answer


def _device(ledger: DeviceLedger, resource: str, device: str) -> dict[str, Any]:
    known = ledger.known.get(resource, {}).get(device)
    answer: dict[str, Any] = {"ID": device, "health": "Healthy"}
    if known is not None and known.nodes is not None:
        answer["topology"] = {"nodes": [{"ID": node} if node else {} for node in known.nodes]}
    return answer


def _status(ledger: DeviceLedger, held: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """UpdateAllocatedResourcesStatus: an id that isn't listed counts as Healthy."""
    answer = []
    for resource, ids in held.items():
        known = ledger.known.get(resource, {})
        health = {one: known[one].healthy if one in known else True for one in ids}
        resources = [{"resourceID": one, "health": "Healthy" if health[one] else "Unhealthy"} for one in ids]
        answer.append({"name": resource, "resources": resources})
    return answer

"""The reported capacity of the node, the devices of a container, and the device manager's whole view."""

import math
import re
from collections.abc import Container
from typing import Any

from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.incarnation import Incarnation


def capacity(incarnation: Incarnation, connections: PluginConnections) -> dict[str, Any]:
    """GetCapacity. It also forgets each resource whose plugin has been gone for longer than the grace period."""
    ledger, grace, endpoints = incarnation.ledger, incarnation.behaviour.grace, connections.endpoints
    if grace is None:  # 1.8 leaves out zeros (cm/container_manager_linux.go)
        counts = {resource: len(ids) for resource, ids in ledger.healthy.items() if ids}
        return {"capacity": counts, "allocatable": dict(counts), "removed": []}
    removed = []
    for resource in sorted(ledger.healthy.keys() | ledger.unhealthy.keys()):
        stopped = endpoints[resource].stopped_at if resource in endpoints else -math.inf
        if stopped is not None and incarnation.now() - stopped > grace:
            endpoints.pop(resource, None)
            ledger.forget(resource)
            removed.append(resource)
    if removed:
        incarnation.save()
        incarnation.emit("resources removed", resources=tuple(removed))

    # From 1.10 on capacity includes Unhealthy devices; before, they vanish from both counts.
    allocatable = {resource: len(ids) for resource, ids in ledger.healthy.items()}
    total = dict(allocatable)
    if not incarnation.behaviour.hides_unhealthy:
        for resource, ids in ledger.unhealthy.items():
            total[resource] = total.get(resource, 0) + len(ids)
    return {"capacity": total, "allocatable": allocatable, "removed": removed}


def resources(incarnation: Incarnation, connections: PluginConnections, pods: Container[str]) -> dict[str, Any]:
    """Every resource's plugin, counts, devices and holders now. Unlike `capacity` it forgets nothing. `pods`: the uids
    of the active pods.
    """
    ledger, names, reply = incarnation.ledger, incarnation.node.pod_names, {}
    for name in sorted(ledger.healthy.keys() | ledger.unhealthy.keys() | ledger.allocated.keys()):
        healthy, unhealthy = ledger.healthy.get(name, set()), ledger.unhealthy.get(name, set())

        # A deleted pod holds its devices until the next admission (updateAllocatedDevices).
        holders: dict[str, list[str]] = {}
        for one in ledger.holdings.values():
            gone = "" if one.pod in pods else " (deleted)"
            for device in one.ids if one.resource == name else ():
                holders.setdefault(device, []).append(f"{names.get(one.pod, one.pod)}/{one.container}{gone}")

        known, found = ledger.known.get(name, {}), []
        for device in sorted(healthy | unhealthy | holders.keys(), key=natural):
            health = "Healthy" if device in healthy else "Unhealthy" if device in unhealthy else "gone"
            numa = (known[device].nodes if device in known else None) or ()
            found.append({"id": device, "health": health, "numa": list(numa), "holders": holders.get(device, [])})
        endpoint = connections.endpoints.get(name)
        stopped = endpoint is None or endpoint.plugin is None or endpoint.stopped_at is not None
        reply[name] = {
            "plugin": "none" if endpoint is None else "gone" if stopped else "connected",
            "capacity": len(healthy) + (0 if ledger.hides_unhealthy else len(unhealthy)),
            "allocatable": len(healthy),
            "devices": found,
        }
    return reply


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key under which d10 comes after d9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", text)]


def devices(incarnation: Incarnation, pod: str, container: str) -> dict[str, Any]:
    """A container's ids, all healthy devices, and the container's `allocatedResourcesStatus` (from 1.31 on). `pod`: its
    uid.
    """
    ledger = incarnation.ledger
    allocatable: dict[str, dict[str, Any]] = {}
    for resource, healthy in ledger.healthy.items():
        allocatable[resource] = {}
        for device in sorted(healthy):
            allocatable[resource][device] = {"ID": device, "health": "Healthy"}
            nodes = ledger.known[resource][device].nodes
            if nodes is not None:
                topology = {"nodes": [{"ID": node} if node else {} for node in nodes]}  # JSON leaves out a zero
                allocatable[resource][device]["topology"] = topology
    holdings = ledger.of_container(pod, container)
    held: dict[str, Any] = {one.resource: {device: {} for device in sorted(one.ids)} for one in holdings}
    answer: dict[str, Any] = {"container": held, "allocatable": allocatable}
    if not incarnation.behaviour.resource_status:
        return answer

    # UpdateAllocatedResourcesStatus: an id that isn't listed counts as Healthy.
    statuses = []
    for resource, ids in held.items():
        known = ledger.known.get(resource, {})
        health = {one: "Unhealthy" if one in known and not known[one].healthy else "Healthy" for one in ids}
        listed = [{"resourceID": one, "health": health[one]} for one in ids]
        statuses.append({"name": resource, "resources": listed})
    return {**answer, "status": [{"name": container, "allocatedResourcesStatus": statuses}]}

"""What a pod asks a node for: device-plugin resources, and claims. Pure (noderesources and dynamicresources, 1.37).

Which way an extended resource goes is decided for each node: allocatable above 0 is the device plugin's; else, if a
DeviceClass has the name, it is DRA's. The newest class of a name counts, and of two made in the same second the one
whose own name comes first (dynamic-resource-allocation/deviceclass/extendedresourcecache). On the device plugin's side
the requests of all the node's pods count, those that have their devices by DRA as well (seen).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Object = dict[str, Any]
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""The extended resource that every class is, followed by its name."""


class ContainerRequest(NamedTuple):
    """One extended resource of one container; `place` counts init containers first."""

    container: str
    place: int
    resource: str
    amount: int


class Ways(NamedTuple):
    """Which requests of a pod go which way on one node, and the resources that it lacks."""

    claimed: list[tuple[ContainerRequest, str]]
    """Each with the name of its class."""
    insufficient: list[str]


def container_requests(pod: Object) -> list[ContainerRequest]:
    spec = pod["spec"]
    containers = (*spec.get("initContainers", ()), *spec.get("containers", ()))
    return [
        ContainerRequest(one["name"], index, name, int(count))
        for index, one in enumerate(containers)
        for name, count in one.get("resources", {}).get("limits", {}).items()
        if "/" in name and int(count)
    ]


def total(pod: Object) -> Counter[str]:
    """A pod's requests: the sum of its containers and sidecars, or its largest init container if that is more."""
    found: Counter[str] = Counter()
    init = {it["name"]: it.get("restartPolicy") == "Always" for it in pod["spec"].get("initContainers", ())}
    for one in container_requests(pod):
        if init.get(one.container, True):
            found[one.resource] += one.amount
    for one in container_requests(pod):
        if not init.get(one.container, True):
            found[one.resource] = max(found[one.resource], one.amount)
    return found


def by_resource(classes: Iterable[Object]) -> dict[str, str]:
    """The class of each extended resource."""
    found: dict[str, str] = {}
    by_name = sorted(classes, key=lambda it: str(it["metadata"]["name"]), reverse=True)
    for one in sorted(by_name, key=lambda it: str(it["metadata"]["creationTimestamp"])):
        name = one["metadata"]["name"]
        found[f"{IMPLICIT}{name}"] = name
        if extended := one.get("spec", {}).get("extendedResourceName"):
            found[extended] = name
    return found


def ways(pod: Object, node: Object, others: Iterable[Object], classes: Mapping[str, str]) -> Ways:
    """`others`: the node's pods that haven't ended; `classes`: as of `by_resource`."""
    allocatable = {name: int(n) for name, n in node.get("status", {}).get("allocatable", {}).items() if "/" in name}
    used = sum((total(one) for one in others), Counter[str]())
    claimed, insufficient = [], []
    for resource, wanted in total(pod).items():
        there = allocatable.get(resource, 0)
        if there <= 0 and resource in classes:
            mine = [one for one in container_requests(pod) if one.resource == resource]
            claimed += [(one, classes[resource]) for one in mine]
        elif wanted > there - used[resource]:
            insufficient.append(resource)
    return Ways(claimed, insufficient)


def claim_of(pod: Object, claimed: Iterable[tuple[ContainerRequest, str]]) -> tuple[Object, list[Object]]:
    """The claim of a pod's extended resources, and its requests by container and resource."""
    requests, mappings, sequence = list[Object](), list[Object](), Counter[int]()
    found = sorted(claimed, key=lambda it: (it[0].place, it[0].resource))
    init = {it["name"] for it in pod["spec"].get("initContainers", ()) if it.get("restartPolicy") != "Always"}
    names: dict[tuple[str, str], str] = {}
    for one, class_ in found:
        # An init container has ended before the others begin, so it shares the request of one of them (seen).
        others = [it for it, _ in found if it.container not in init and it.resource == one.resource]
        if one.container in init and any(it.amount >= one.amount for it in others):
            continue
        names[one.container, one.resource] = name = f"container-{one.place}-request-{sequence[one.place]}"
        sequence[one.place] += 1
        exactly = {"deviceClassName": class_, "allocationMode": "ExactCount", "count": one.amount}
        requests.append({"name": name, "exactly": exactly})
    for one, _ in found:
        same = [it for it, _ in found if it.resource == one.resource and (it.container, it.resource) in names]
        other = next((it for it in same if it.amount >= one.amount and it.container not in init), one)
        name = names.get((one.container, one.resource)) or names[other.container, other.resource]
        mappings.append({"containerName": one.container, "resourceName": one.resource, "requestName": name})
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{metadata['name']}-extended-resources-",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": requests}},
    }
    return claim, mappings

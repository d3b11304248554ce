"""Pods of the API server, as the kubelet reads them. Pure."""

from collections.abc import Mapping
from typing import Any

from dpgateway_simulator.apiserver import Object
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.pods import Pod, PodClaim, PodContainer


def pod(one: Object, behaviour: Behaviour) -> Pod:
    """A kubelet from 1.36 on leaves resources that come by a claim to DRA (isDRAExtendedResource in devicemanager)."""
    spec, status, metadata = one["spec"], one.get("status", {}), one["metadata"]
    extended = status.get("extendedResourceClaimStatus") or {}
    mappings = extended.get("requestMappings", ())
    by_claim = {(it["containerName"], it["resourceName"]) for it in mappings} if behaviour.dra == "extended" else set()
    claims = list(_claims(spec, status))
    if extended:
        users = tuple((it["containerName"], it["requestName"]) for it in mappings)
        claims.append(PodClaim(extended["resourceClaimName"], users))

    def containers(key: str) -> tuple[PodContainer, ...]:
        return tuple(_container(it, by_claim) for it in spec.get(key, ()))

    return Pod(metadata["name"], containers("containers"), containers("initContainers"), tuple(claims), metadata["uid"])


def _container(one: Mapping[str, Any], by_claim: set[tuple[str, str]]) -> PodContainer:
    limits = one.get("resources", {}).get("limits", {})
    wanted = {name: int(n) for name, n in limits.items() if "/" in name and (one["name"], name) not in by_claim}
    claimed = frozenset(name for container, name in by_claim if container == one["name"])
    return PodContainer(one["name"], wanted, one.get("restartPolicy") == "Always", claimed)


def _claims(spec: Object, status: Object) -> list[PodClaim]:
    """The claims of the spec, with the containers that use them."""
    made = {it["name"]: it.get("resourceClaimName", "") for it in status.get("resourceClaimStatuses", ())}
    found = []
    for one in spec.get("resourceClaims", ()):
        users = [
            (container["name"], use.get("request", ""))
            for container in (*spec.get("initContainers", ()), *spec.get("containers", ()))
            for use in container.get("resources", {}).get("claims", ())
            if use["name"] == one["name"]
        ]
        name = one.get("resourceClaimName") or made.get(one["name"], "")
        found.append(PodClaim(name, tuple(users), one["name"]))
    return found

"""Pods of the API server, as the kubelet reads them. Pure."""

from dpgateway_simulator.apiserver import Object
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.pods import Pod, PodClaim, PodContainer


def pod(one: Object, behaviour: Behaviour) -> Pod:
    """A kubelet from 1.36 on leaves resources that come by a claim to DRA (isDRAExtendedResource in devicemanager)."""
    spec, status, metadata = one["spec"], one.get("status", {}), one["metadata"]
    extended = status.get("extendedResourceClaimStatus") or {}
    mappings = extended.get("requestMappings", ())
    by_claim = {(it["containerName"], it["resourceName"]) for it in mappings} if behaviour.dra == "extended" else set()

    # The claims of the spec, with the containers that use them, and the claim of the extended resources.
    made = {it["name"]: it.get("resourceClaimName", "") for it in status.get("resourceClaimStatuses", ())}
    claims = []
    for claim in spec.get("resourceClaims", ()):
        uses = [
            (container["name"], use.get("request", ""))
            for container in (*spec.get("initContainers", ()), *spec.get("containers", ()))
            for use in container.get("resources", {}).get("claims", ())
            if use["name"] == claim["name"]
        ]
        name = claim.get("resourceClaimName") or made.get(claim["name"], "")
        claims.append(PodClaim(name, tuple(uses), claim["name"]))
    if extended:
        users = tuple((it["containerName"], it["requestName"]) for it in mappings)
        claims.append(PodClaim(extended["resourceClaimName"], users))

    containers: dict[str, list[PodContainer]] = {"containers": [], "initContainers": []}
    for key, found in containers.items():
        for it in spec.get(key, ()):
            limits = it.get("resources", {}).get("limits", {})
            wanted = {name: int(n) for name, n in limits.items() if "/" in name and (it["name"], name) not in by_claim}
            claimed = frozenset(name for container, name in by_claim if container == it["name"])
            found.append(PodContainer(it["name"], wanted, it.get("restartPolicy") == "Always", claimed))
    app, init = (tuple(found) for found in containers.values())
    return Pod(metadata["name"], app, init, tuple(claims), metadata["uid"])

"""The scheduler: binds pods to nodes, and allocates their claims (kube-scheduler 1.37, as far as devices go).

It looks at every pod that waits, the oldest first, whenever an object changes. A pod goes to the first node, by name,
that has all it asks for. Its claims are written, and reserved for it, before it is bound; the kubelet of its node isn't
asked, so a pod may be bound to one that can't do what the scheduler counts on.
"""

import copy
from collections import Counter
from functools import partial
from operator import methodcaller
from typing import Any

from dpgateway_simulator.apiserver import Object, Store
from dpgateway_simulator.cluster import requesting
from dpgateway_simulator.cluster.allocating import Allocator, Unallocatable
from dpgateway_simulator.cluster.inventory import inventory
from dpgateway_simulator.cluster.selectors import SelectorError

NAMESPACE = "default"
FINALIZER = "resource.kubernetes.io/delete-protection"
ENDED = ("Failed", "Succeeded")


def schedule(store: Store) -> None:
    """Binds what can be bound."""
    pods = [one for key, one in store.objects.items() if key[0] == "pods"]  # in the order of their creation
    for pod in pods:
        ending = "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] in ENDED
        if ending or pod["spec"].get("nodeName"):
            continue
        refusals: Counter[str] = Counter()
        nodes, wanted = [], pod["spec"].get("nodeSelector", {}).items()
        for node in store.list("nodes"):
            labels = {"kubernetes.io/hostname": node["metadata"]["name"], **node["metadata"].get("labels", {})}
            if wanted <= labels.items():
                nodes.append(node)
        for node in nodes:
            try:
                _bind(store, pod, node)
                break
            except (Unallocatable, SelectorError) as error:
                refusals[str(error)] += 1
        else:
            reasons = ", ".join(f"{n} {text}" for text, n in refusals.items()) or "no nodes available"
            text = f"0/{len(nodes)} nodes are available: {reasons}."
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
            status = {**pod["status"], "conditions": [condition]}
            store.update(("pods", NAMESPACE, pod["metadata"]["name"]), methodcaller("update", {"status": status}))


def _bind(store: Store, pod: Object, node: Object) -> None:
    """Raises Unallocatable, SelectorError, and has changed nothing then."""
    name, key = node["metadata"]["name"], ("pods", NAMESPACE, pod["metadata"]["name"])
    others = [one for one in store.list("pods", "", {"spec.nodeName": name}) if one["status"]["phase"] not in ENDED]
    found = requesting.ways(pod, node, others, requesting.by_resource(store.list("deviceclasses")))
    if found.insufficient:
        raise Unallocatable(", ".join(f"Insufficient {one}" for one in found.insufficient))
    claims = _claims(store, pod)
    extended, mappings = requesting.claim_of(pod, found.claimed) if found.claimed else (None, [])
    todo = [one for one in claims if not _allocation(one)] + ([extended] if extended else [])
    for one in claims:
        if _allocation(one) and _allocation(one).get("nodeName", name) != name:
            raise Unallocatable("resourceclaim not available on the node")
    classes = {one["metadata"]["name"]: one for one in store.list("deviceclasses")}
    allocator = Allocator(inventory(name, store.list("resourceslices"), store.list("resourceclaims")), classes)
    allocations = allocator.allocate(todo)

    if extended is not None:
        extended = store.create("resourceclaims", NAMESPACE, extended)
        said = {"resourceClaimName": extended["metadata"]["name"], "requestMappings": mappings}
        store.update(key, lambda it: it["status"].update({"extendedResourceClaimStatus": said}))
        todo[-1] = extended
    for claim, allocation in zip(todo, allocations, strict=True):
        field = {"key": "metadata.name", "operator": "In", "values": [name]}
        on = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
        given = partial(_give, allocation={**allocation, **on})
        store.update(("resourceclaims", NAMESPACE, claim["metadata"]["name"]), given)
    user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    for claim in (*claims, *([extended] if extended else [])):
        store.update(("resourceclaims", NAMESPACE, claim["metadata"]["name"]), partial(_reserve, user=user))
    store.update(key, lambda it: (it["spec"].update({"nodeName": name}), it["status"].pop("conditions", None)))


def _claims(store: Store, pod: Object) -> list[Object]:
    """The claims of the pod's spec. Raises Unallocatable if one isn't there, or belongs to too many."""
    made = {it["name"]: it["resourceClaimName"] for it in pod["status"].get("resourceClaimStatuses", ())}
    found = []
    for one in pod["spec"].get("resourceClaims", ()):
        name = one.get("resourceClaimName") or made.get(one["name"], "")
        claim = store.objects.get(("resourceclaims", NAMESPACE, name))
        if claim is None:
            raise Unallocatable(f'resourceclaim "{name or one["name"]}" not found')
        if "deletionTimestamp" in claim["metadata"]:
            raise Unallocatable(f'resourceclaim "{name}" is being deleted')
        found.append(claim)
    return found


def _allocation(claim: Object) -> dict[str, Any]:
    found = dict(claim.get("status", {}).get("allocation") or {})
    if found:
        terms = found.get("nodeSelector", {}).get("nodeSelectorTerms", ())
        fields = [it for term in terms for it in term.get("matchFields", ())]
        found |= {"nodeName": fields[0]["values"][0]} if fields else {}
    return found


def _give(claim: Object, allocation: Object) -> None:
    claim.setdefault("status", {})["allocation"] = copy.deepcopy(allocation)
    claim["metadata"].setdefault("finalizers", []).append(FINALIZER)


def _reserve(claim: Object, user: Object) -> None:
    reserved = claim["status"].setdefault("reservedFor", [])
    if user not in reserved:
        reserved.append(user)

"""The controller manager, as far as devices go: claims made from templates, claims of pods that ended, garbage.

A claim is free once no pod that hasn't ended uses it: at once for a pod that is deleted by force, whatever its kubelet
still does (seen). The claim of a pod's extended resources, or of its template, is deleted with it. What belongs to an
object that is gone is deleted: slices with their Node (seen after 0.1 s).
"""

from operator import methodcaller
from typing import Any

from dpgateway_simulator.apiserver import ApiRefusal, Object, Store
from dpgateway_simulator.cluster.scheduler import ENDED, FINALIZER, NAMESPACE


def control(store: Store) -> None:
    """Does what is to be done now."""
    for pod in store.list("pods"):
        made, name = list(pod["status"].get("resourceClaimStatuses", ())), pod["metadata"]["name"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": True}
        for one in pod["spec"].get("resourceClaims", ()) if pod["status"]["phase"] not in ENDED else ():
            key = ("resourceclaimtemplates", NAMESPACE, one.get("resourceClaimTemplateName", ""))
            template = store.objects.get(key)
            if template is None or any(it["name"] == one["name"] for it in made):
                continue
            metadata = {"generateName": f"{name}-{one['name']}-", "ownerReferences": [owner]}
            claim = store.create("resourceclaims", NAMESPACE, {"metadata": metadata, "spec": template["spec"]["spec"]})
            made.append({"name": one["name"], "resourceClaimName": claim["metadata"]["name"]})
        if made:
            status = {**pod["status"], "resourceClaimStatuses": made}
            store.update(("pods", NAMESPACE, name), methodcaller("update", {"status": status}))
    pods = {one["metadata"]["uid"]: one for one in store.list("pods")}
    for claim in store.list("resourceclaims"):
        _release(store, claim, pods)
    for plural in ("resourceslices", "resourceclaims"):
        for one in store.list(plural):
            if _is_garbage(store, one, pods):
                metadata = one["metadata"]
                store.delete((plural, metadata.get("namespace", ""), metadata["name"]))


def _release(store: Store, claim: Object, pods: dict[str, Object]) -> None:
    """Frees a claim that no pod uses any more."""
    status, metadata = claim.get("status", {}), claim["metadata"]
    running = {uid for uid, pod in pods.items() if pod["status"]["phase"] not in ENDED}
    users = [it for it in status.get("reservedFor", ()) if it["uid"] in running]
    if "reservedFor" not in status or users == status["reservedFor"]:
        return

    def change(one: Object) -> None:
        one["status"]["reservedFor"] = users
        if not users:
            one["status"] = {}
            kept = [it for it in one["metadata"].get("finalizers", ()) if it != FINALIZER]
            one["metadata"]["finalizers"] = kept

    key = ("resourceclaims", NAMESPACE, metadata["name"])
    store.update(key, change)
    owned = any(it.get("controller") for it in metadata.get("ownerReferences", ()))
    if owned and not users and key in store.objects:
        store.delete(key)


def _is_garbage(store: Store, one: Object, pods: dict[str, Object]) -> bool:
    owners: list[dict[str, Any]] = one["metadata"].get("ownerReferences", [])
    for owner in owners:
        if owner["kind"] == "Pod" and owner["uid"] in pods:
            return False
        if owner["kind"] == "Node":
            try:
                if store.get(("nodes", "", owner["name"]))["metadata"]["uid"] == owner["uid"]:
                    return False
            except ApiRefusal:
                pass
    return bool(owners) and "deletionTimestamp" not in one["metadata"]

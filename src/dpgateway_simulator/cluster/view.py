"""What people see of a simulated cluster: pods and why they are as they are, devices, claims, what containers have."""

from dataclasses import dataclass, field
from typing import Any

from dpgateway_simulator.apiserver import Object, Store
from dpgateway_simulator.cluster.inventory import results
from dpgateway_simulator.cluster.scheduler import NAMESPACE
from dpgateway_simulator.kubelet.kubelet import Kubelet


@dataclass(eq=False)
class ClusterView:
    """The objects of a cluster, and the kubelets of its nodes."""

    store: Store
    kubelets: dict[str, Kubelet] = field(default_factory=dict)
    """By the node's name."""

    def pod(self, name: str) -> Object | None:
        """The pod's object."""
        return self.store.objects.get(("pods", NAMESPACE, name))

    def phase(self, pod: str) -> str:
        """`Pending`, `Running`, `Failed`; `Terminating`, `Gone`."""
        found = self.pod(pod)
        if found is None:
            return "Gone"
        return "Terminating" if "deletionTimestamp" in found["metadata"] else str(found["status"]["phase"])

    def why(self, pod: str) -> str:
        """Why a pod isn't scheduled, or has failed; else the text of its last event."""
        found = self.pod(pod) or {"status": {}, "metadata": {"uid": ""}}
        texts = [one["message"] for one in found["status"].get("conditions", ()) if one.get("message")]
        texts += [found["status"]["message"]] if found["status"].get("message") else []
        return texts[-1] if texts else next(iter(self.events(pod)[::-1]), "")

    def events(self, pod: str) -> list[str]:
        """The texts of the events about a pod, the oldest first."""
        found = [one for key, one in self.store.objects.items() if key[0] == "events"]
        return [str(one.get("note", "")) for one in found if one.get("regarding", {}).get("name") == pod]

    def allocated(self, pod: str) -> list[str]:
        """The names of the devices that a pod's claims are allocated, with their slices' names."""
        claims = self.store.list("resourceclaims")
        uid = (self.pod(pod) or {"metadata": {"uid": ""}})["metadata"]["uid"]
        mine = [one for one in claims if uid in {it["uid"] for it in one.get("status", {}).get("reservedFor", ())}]
        return [str(it["device"]) for one in mine for it in results(one)]

    def devices(self, driver: str | None = None) -> dict[str, Object]:
        """The devices in the slices, by name, in the order in which the scheduler takes them."""
        slices = [one["spec"] for one in self.store.list("resourceslices")]
        return {it["name"]: it for one in slices if driver in {None, one["driver"]} for it in one.get("devices", ())}

    def allocatable(self, node: str, resource: str) -> int:
        """What the Node says that the device plugin offers, which is up to `KubeletPauses.status` old."""
        found = self.store.objects.get(("nodes", "", node)) or {}
        return int(found.get("status", {}).get("allocatable", {}).get(resource, 0))

    def inventory(self) -> list[Object]:
        """Each device of the slices: {"device", "pool", "driver", "taints", "claims"}, with the claims that have it."""
        claims = [(it["metadata"]["name"], one) for it in self.store.list("resourceclaims") for one in results(it)]
        return [
            {
                "device": device["name"],
                "pool": spec["pool"]["name"],
                "driver": spec["driver"],
                "taints": [it.get("value") or it["key"] for it in device.get("taints", ())],
                "claims": [
                    name
                    for name, one in claims
                    if (one["driver"], one["pool"], one["device"])
                    == (spec["driver"], spec["pool"]["name"], device["name"])
                ],
            }
            for spec in (one["spec"] for one in self.store.list("resourceslices"))
            for device in spec.get("devices", ())
        ]

    def claims(self) -> list[Object]:
        """Each claim: {"claim", "pods", "devices"}."""
        return [
            {
                "claim": one["metadata"]["name"],
                "pods": [it["name"] for it in one.get("status", {}).get("reservedFor", ())],
                "devices": [it["device"] for it in results(one)],
            }
            for one in self.store.list("resourceclaims")
        ]

    def given(self, pod: str) -> dict[str, Any]:
        """{container: options} of a pod that runs: `devices`, `envs`, `mounts`, `cdi_devices`, as it was started."""
        return next((found for it in self.kubelets.values() if (found := it.given(pod))), {})

    def nodes_of(self, pod: str) -> set[str]:
        """The device nodes of the host that a running pod has: two pods with one are what must never be."""
        return {it["host_path"] for options in self.given(pod).values() for it in options["devices"]}

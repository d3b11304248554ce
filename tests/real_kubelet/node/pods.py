"""Static pods: what the kubelet is given, and what it says of them."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from tests.real_kubelet.node.image import IMAGE

Containers = Mapping[str, Mapping[str, int]] | Iterable[Mapping[str, Any]]
FOREVER = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]


def manifest(name: str, containers: Containers, init: Containers, spec: Mapping[str, Any]) -> dict[str, Any]:
    # a uid of its own each time, else the kubelet takes a pod that comes again for the one that was there
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": str(uuid.uuid4())},
        "spec": {
            "hostNetwork": True,  # there is no CNI
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": _containers(containers),
            "initContainers": _containers(init),
            **spec,
        },
    }


def _containers(given: Containers) -> list[dict[str, Any]]:
    if isinstance(given, Mapping):
        given = [{"name": name, "resources": {"limits": dict(limits)}} for name, limits in given.items()]
    usual = {"image": IMAGE, "imagePullPolicy": "Never", "command": FOREVER}
    return [{**usual, "terminationMessagePolicy": "FallbackToLogsOnError", **one} for one in given]


class Pod:
    """A v1.Pod as the kubelet lists it."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.status = given, given["status"]
        self.uid: str = given["metadata"]["uid"]
        self.phase: str = self.status.get("phase", "")
        self.reason: str = self.status.get("reason", "")
        self.message: str = self.status.get("message", "")

    @property
    def containers(self) -> dict[str, dict[str, Any]]:
        """Their ContainerStatus objects, init containers' too, by name."""
        kinds = ("initContainerStatuses", "containerStatuses")
        return {one["name"]: one for kind in kinds for one in self.status.get(kind, ())}

    @property
    def all_running(self) -> bool:
        return all("running" in one["state"] for one in self.status.get("containerStatuses", ()))

    def container_id(self, name: str) -> str:
        return str(self.containers[name]["containerID"]).rpartition("/")[2]

    def __str__(self) -> str:
        states = {name: one["state"] for name, one in self.containers.items()}
        return f"{self.phase} {self.reason} {self.message} {states}"

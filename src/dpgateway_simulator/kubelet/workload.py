"""The pods of one incarnation: their admission, the start of their containers, and the replies to the user."""

import asyncio
from typing import Any

from dpgateway_simulator.kubelet.admission import Admission, PodRefusedError
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.dra.containers import ClaimedDevices
from dpgateway_simulator.kubelet.errors import AllocationError, Crashed, NotRunningError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.pod_directories import RootDirectory
from dpgateway_simulator.kubelet.pods import Pod, PodContainer
from dpgateway_simulator.kubelet.starting import NOTHING

Reply = dict[str, Any]


class Workload:
    """The pods of one incarnation.

    `pods` contains active pods by name, `finished` pods whose containers have ended by themselves, until they are
    deleted, `started` the running (pod, container). A pod is in `pods` during its own admission, as in the kubelet, so
    that its devices aren't freed meanwhile.
    """

    def __init__(self, incarnation: Incarnation, connections: PluginConnections, directories: RootDirectory) -> None:
        self._incarnation, self._directories = incarnation, directories
        self.pods: dict[str, Pod] = {}
        self.finished: dict[str, Pod] = {}
        self.started: set[tuple[str, str]] = set(incarnation.found_running)
        self.claimed: ClaimedDevices | None = None
        """What containers have by claims; None in a kubelet of no cluster."""
        self._admission = Admission(incarnation, connections, self.pods)
        self._admitting = asyncio.Lock()  # the kubelet admits one pod at a time

    async def admit(self, pod: Pod, *, start: bool) -> Reply:
        """Admits a pod and, if `start`, starts its containers. A refused pod is forgotten: it has failed for good."""
        async with self._admitting:
            # The pod is active during its own admission, else its devices would be freed. A readmitted one becomes the
            # newest.
            self.pods.pop(pod.name, None)
            self.finished.pop(pod.name, None)
            self.pods[pod.name] = pod
            self._incarnation.node.pod_names[pod.uid] = pod.name
            try:
                await self._admission.admit(pod)
            except PodRefusedError as error:
                self._check()
                self.pods.pop(pod.name, None)
                self._incarnation.emit("pod refused", pod=pod.name, reason=error.reason, message=str(error))
                return {"ok": False, "error": str(error), "stage": "admit", "reason": error.reason}
        self._check()
        self._incarnation.emit("pod admitted", pod=pod.name)
        if not start:
            return {"ok": True}
        started = [await self.start(pod, one) for one in pod.all]
        if errors := [one["error"] for one in started if "error" in one]:
            return {"ok": False, "error": errors[0], "stage": "start", "containers": started}
        return {"ok": True, "containers": started}

    async def start(self, pod: Pod, container: PodContainer) -> Reply:
        """Starts a container: {"name", "options", "error"}."""
        about: dict[str, object] = {"pod": pod.name, "container": container.name}
        self._directories.make(pod.uid)
        try:
            options = await self._admission.start(pod, container)
            if self.claimed is not None:
                options = self.claimed.added(pod, container.name, options)
        except AllocationError as error:
            self._check()
            self._incarnation.emit("container refused", **about, reason=str(error))
            return {"name": container.name, "options": None, "error": str(error)}
        self._check()
        if container not in pod.init or container.restartable:  # other init containers run to their end
            self.started.add((pod.name, container.name))
            self._incarnation.node.given[pod.name, container.name] = options or dict(NOTHING)

        # For the event the container's options are in the syntax of `docker run`.
        got = NOTHING if options is None else options
        gets = {
            "nodes": [f"{one['host_path']}:{one['container_path']}:{one['permissions']}" for one in got["devices"]],
            "mounts": [
                f"{one['host_path']}:{one['container_path']}:{'ro' if one['read_only'] else 'rw'}"
                for one in got["mounts"]
            ],
            "env": [f"{name}={value}" for name, value in got["envs"].items()],
            "annotations": [f"{name}={value}" for name, value in got["annotations"].items()],
            "cdi": got["cdi_devices"],
        }
        about |= {name: tuple(values) for name, values in gets.items() if values}
        self._incarnation.emit("container started", **about)
        return {"name": container.name, "options": options}

    def stop(self, pod: str) -> None:
        """Ends all containers of a pod."""
        for one in [one for one in self.started if one[0] == pod]:
            self.started.discard(one)
            self._incarnation.node.given.pop(one, None)

    def remove(self, pod: str) -> None:
        """Removes a pod. Its devices are freed at the next allocation."""
        self.pods.pop(pod, None)
        self.finished.pop(pod, None)
        self.stop(pod)
        self._incarnation.emit("pod removed", pod=pod)

    def finish(self, pod: str) -> None:
        """Ends all containers of a pod as by themselves. Its devices are freed as by `remove`."""
        self.finished[pod] = self.pods.pop(pod)
        self.stop(pod)
        self._incarnation.emit("pod finished", pod=pod)

    def _check(self) -> None:
        """Raises Crashed or NotRunningError if the incarnation ended during the call."""
        if self._incarnation.crashed:
            raise Crashed(self._incarnation.crashed)
        if self._incarnation.ended:
            raise NotRunningError("the kubelet ended while it was asked")

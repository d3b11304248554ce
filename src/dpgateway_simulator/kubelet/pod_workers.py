"""The pods that the API server has bound to this node: a worker for each, as pkg/kubelet/pod_workers.go has.

Order of a pod's life: admitted, claims prepared, containers started; then containers ended, claims unprepared, and only
then is it terminal for the scheduler. A pod that is deleted by force is gone for the scheduler before any of that.

A Prepare that failed is tried again after a long pause, at the next look at the pod; a pod that is deleted meanwhile
isn't kept by the pause, but by a call under way. An Unprepare that failed is tried again every two seconds, and the pod
stays Terminating until one succeeds.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dpgateway_simulator.apiserver import ApiRefusal, Store
from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.dra.claims import NAMESPACE, ClaimError, ClaimManager
from dpgateway_simulator.kubelet.dra.containers import ClaimedDevices
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.pod_objects import pod as pod_of
from dpgateway_simulator.kubelet.pods import Pod
from dpgateway_simulator.kubelet.workload import Workload

TERMINAL = ("Failed", "Succeeded")


@dataclass(eq=False)
class PodWork:
    """One pod's worker. `admitted` is set once it is decided, `ending` once the pod is to end."""

    pod: Pod
    phase: str
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)


class PodWorkers:
    """The workers of one incarnation, by the pod's uid."""

    def __init__(
        self,
        incarnation: Incarnation,
        node: ClusterNode,
        workload: Workload,
        claims: ClaimManager,
        devices: ClaimedDevices,
    ) -> None:
        self._incarnation, self._node, self._workload = incarnation, node, workload
        self._claims, self._devices = claims, devices
        self._works: dict[str, PodWork] = {}

    async def run(self) -> None:
        """Never returns."""
        store = await self._node.api_back()
        self._look(store)

        # Containers of pods that vanished while no kubelet ran are killed, without a word to their claims' drivers.
        known = {one.pod.name for one in self._works.values()}
        for name in {pod for pod, _ in self._workload.started} - known - self._workload.pods.keys():
            self._workload.remove(name)
        for one in list(self._works.values()):
            await one.admitted.wait()
        self._incarnation.sources_ready = True
        while True:
            if self._node.server.serving:  # first of all: there may be pods that came during the wait above
                self._look(store)
            await store.changed()

    async def reconcile(self) -> None:
        """Unprepares what pods left that ended unseen; never returns."""
        while True:
            await self._incarnation.sleep(self._node.pauses.reconcile)
            if self._incarnation.sources_ready:
                await self._claims.reconcile({*self._works, *(it.uid for it in self._workload.pods.values())})

    def _look(self, store: Store) -> None:
        """Begins workers of new pods, and tells the others of their pod's end."""
        found = {one["metadata"]["uid"]: one for one in store.list("pods", "", {"spec.nodeName": self._node.name})}
        for uid, one in found.items():
            if uid not in self._works and one["status"]["phase"] not in TERMINAL:
                work = self._works[uid] = PodWork(pod_of(one, self._incarnation.behaviour), one["status"]["phase"])
                name = f"kubelet: pod {work.pod.name}"
                self._incarnation.tasks.spawn(name, self._work(work))
            if uid not in self._works and "deletionTimestamp" in one["metadata"]:
                store.delete(("pods", NAMESPACE, one["metadata"]["name"]), grace=0, uid=uid)
        for uid, work in self._works.items():
            if uid not in found or "deletionTimestamp" in found[uid]["metadata"]:
                work.ending.set()

    async def _work(self, work: PodWork) -> None:
        pod = work.pod
        try:
            if not work.ending.is_set():
                await self._begin(work)
            work.admitted.set()
            await work.ending.wait()
            await self._end(work)
        finally:
            self._works.pop(pod.uid, None)
            work.admitted.set()

    async def _begin(self, work: PodWork) -> None:
        """Admits the pod and starts its containers; returns early once it is to end."""
        pod, running = work.pod, {name for pod, name in self._workload.started if pod == work.pod.name}
        reply = await self._workload.admit(pod, start=False)
        work.admitted.set()
        if not reply["ok"]:
            await self._write(pod, {"phase": "Failed", "reason": reply["reason"], "message": reply["error"]})
            work.ending.set()
            return
        if not running and not await self._prepared(work):
            return
        todo = [one for one in pod.all if one.name not in running]
        while todo and not work.ending.is_set():
            started = [(one, await self._workload.start(pod, one)) for one in todo]
            todo = [one for one, reply in started if "error" in reply]
            if errors := [f"{one.name}: {reply['error']}" for one, reply in started if "error" in reply]:
                await self._write(pod, {"phase": "Pending", "reason": "CreateContainerError", "message": errors[0]})
                await self._pause(work, self._node.pauses.start_again)
        if not todo:
            await self._write(pod, {"phase": "Running"})
            self._incarnation.emit("pod running", pod=pod.name)

    async def _prepared(self, work: PodWork) -> bool:
        """Whether the pod's claims are prepared; False if it is to end."""
        while not work.ending.is_set():
            try:
                await self._claims.prepare(work.pod)
            except ClaimError as error:
                self._incarnation.emit("prepare failed", pod=work.pod.name, reason=str(error))
                if self._node.server.serving:
                    about = {"kind": "Pod", "namespace": NAMESPACE, "name": work.pod.name, "uid": work.pod.uid}
                    event = {
                        "apiVersion": "events.k8s.io/v1",
                        "kind": "Event",
                        "metadata": {"generateName": f"{work.pod.name}."},
                        "regarding": about,
                        "type": "Warning",
                        "reason": "FailedPrepareDynamicResources",
                        "note": f"Failed to prepare dynamic resources: {error}",
                        "reportingController": "kubelet",
                        "reportingInstance": self._node.name,
                    }
                    self._node.server.store.create("events", NAMESPACE, event)
            else:
                return not work.ending.is_set()
            await self._pause(work, self._node.pauses.prepare_again)
        return False

    async def _pause(self, work: PodWork, seconds: float) -> None:
        """Returns early once the pod is to end."""
        pausing = asyncio.ensure_future(self._incarnation.sleep(seconds))
        ending = asyncio.ensure_future(work.ending.wait())
        try:
            await asyncio.wait({pausing, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pausing.cancel()
            ending.cancel()

    async def _end(self, work: PodWork) -> None:
        """Ends the containers, then the claims, then the pod."""
        if self._node.pauses.ending:
            await self._incarnation.sleep(self._node.pauses.ending)
        self._workload.stop(work.pod.name)
        while True:
            try:
                await self._claims.unprepare(work.pod.uid, {one.object for one in self._claims.uses(work.pod)})
                break
            except ClaimError as error:
                self._incarnation.emit("unprepare failed", pod=work.pod.name, reason=str(error))
                await self._incarnation.sleep(self._node.pauses.unprepare_again)
        if work.pod.name in self._workload.pods:
            self._workload.remove(work.pod.name)
        store = await self._node.api_back()
        key = ("pods", NAMESPACE, work.pod.name)
        with contextlib.suppress(ApiRefusal):  # it is gone, or another one has its name
            if store.get(key)["metadata"].get("deletionTimestamp"):
                store.delete(key, grace=0, uid=work.pod.uid)

    def status(self) -> Iterable[tuple[Pod, list[dict[str, Any]]]]:
        """The containers' statuses of each pod that runs."""
        for work in self._works.values():
            names = [one.name for one in work.pod.all if (work.pod.name, one.name) in self._workload.started]
            yield (
                work.pod,
                [{"name": it, "allocatedResourcesStatus": self._devices.status(work.pod, it)} for it in names],
            )

    async def write_health(self) -> None:
        """Writes the pods' statuses anew where a device's health changed."""
        if self._incarnation.behaviour.health_services:
            for pod, containers in list(self.status()):
                if any(one["allocatedResourcesStatus"] for one in containers):
                    await self._write(pod, {"containerStatuses": containers})

    async def _write(self, pod: Pod, status: dict[str, Any]) -> None:
        """Changes the pod's status, once the API server answers."""
        if status.get("phase") == "Running":
            status["containerStatuses"] = next((found for one, found in self.status() if one is pod), [])
        store = await self._node.api_back()
        with contextlib.suppress(ApiRefusal):
            key = ("pods", NAMESPACE, pod.name)
            if store.get(key)["metadata"]["uid"] == pod.uid:
                store.update(key, lambda one: one["status"].update(status))

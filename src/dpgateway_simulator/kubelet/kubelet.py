"""The user's interface to a simulated kubelet: queries, pods, calls without a pod, mischief."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dpgateway_simulator.kubelet import status
from dpgateway_simulator.kubelet.errors import NotRunningError
from dpgateway_simulator.kubelet.events import KubeletEvent
from dpgateway_simulator.kubelet.plugin import PluginClient
from dpgateway_simulator.kubelet.pods import Pod, Spec, containers
from dpgateway_simulator.kubelet.restartable import Reply, Restartable
from dpgateway_simulator.wire.dialects import Answer, Registration

T = TypeVar("T")


class Kubelet(Restartable):
    """One simulated kubelet, from incarnation to incarnation.

    `version` is "1.8" to "1.37", `directory` stands for /var/lib/kubelet/device-plugins, `policy` is the topology
    manager's, `numa` the number of the machine's NUMA nodes. Replies are plain dictionaries. Where the real kubelet
    panics, a call raises Crashed and `crashed` contains the reason; a stopped kubelet raises NotRunningError.

    If the directory's name is device-plugins, its parent is the kubelet's --root-dir: the kubelet serves PodResources
    List there, and keeps a directory for each pod (pod_resources.py, pod_directories.py). With a `cluster` it is the
    kubelet of one of its nodes, too: it runs the pods that are bound to the node, with their claims (cluster_side.py).
    """

    # the node and its pods

    def capacity(self) -> Reply:
        """{"capacity": {...}, "allocatable": {...}, "removed": [...]}, as in the next update of the node's status."""
        manager = self._running()
        return status.capacity(manager.incarnation, manager.connections)

    def counts(self, resource: str) -> tuple[int | None, int | None]:
        """One resource's capacity and allocatable; None if it isn't in the node's status."""
        now = self.capacity()
        return now["capacity"].get(resource), now["allocatable"].get(resource)

    def resources(self) -> Reply:
        """{resource: {"plugin": "connected"|"gone"|"none", "capacity", "allocatable", "devices": [...]}}, as of now.

        A device is {"id", "health", "numa", "holders": ["pod/container", ...]}; the health of a held device that is
        in no list is "gone".
        """
        manager = self._running()
        pods = {one.uid for one in manager.workload.pods.values()}
        return status.resources(manager.incarnation, manager.connections, pods)

    async def admit(self, pod: str, containers_: Spec, init: Spec = (), start: bool = True) -> Reply:
        """Admits a pod and starts its containers: {"ok", "error", "reason", "stage": "admit"|"start", "containers"}."""
        wanted = Pod(pod, containers(containers_), containers(init))
        return await self._running().workload.admit(wanted, start=start)

    async def start_container(self, pod: str, container: str) -> Reply:
        """Starts a container of an admitted pod (again): {"ok", "name", "options", "error"}."""
        workload = self._running().workload
        if pod not in workload.pods:
            return {"ok": False, "error": f'pod "{pod}" is not active'}
        found = next((one for one in workload.pods[pod].all if one.name == container), None)
        if found is None:
            return {"ok": False, "error": f'pod "{pod}" has no container "{container}"'}
        reply = await workload.start(workload.pods[pod], found)
        return {"ok": "error" not in reply, **reply}

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of its pods, without refused pods."""
        return tuple(self._manager.workload.pods) if self._manager else ()

    def containers(self, pod: str) -> tuple[str, ...]:
        """The names of a pod's containers, init containers first."""
        found = self._manager.workload.pods.get(pod) if self._manager else None
        return tuple(one.name for one in found.all) if found else ()

    def remove(self, pod: str) -> Reply:
        """Removes a pod. The kubelet frees its devices lazily, at the next allocation."""
        self._running().workload.remove(pod)
        return {"ok": True}

    def finish(self, pod: str) -> Reply:
        """Ends a pod's containers as by themselves, without deleting the pod. Its devices are freed as by `remove`."""
        if pod not in self._running().workload.pods:
            return {"ok": False, "error": f'pod "{pod}" is not active'}
        self._running().workload.finish(pod)
        return {"ok": True}

    def devices(self, pod: str, container: str) -> Reply:
        """{"container": {resource: {id: ...}}, "allocatable": {...}, "status": [...] from 1.31 on}."""
        manager = self._running()
        uid = manager.workload.pods[pod].uid if pod in manager.workload.pods else pod
        return status.devices(manager.incarnation, uid, container)

    def given(self, pod: str) -> Reply:
        """{container: options} of a pod's running containers: what each was started with, CDI names resolved if the
        kubelet is one of a cluster.
        """
        return {name: options for (one, name), options in self._node.given.items() if one == pod}

    @property
    def running_pods(self) -> tuple[str, ...]:
        """The pods with a container that runs, whether a kubelet does or not."""
        return tuple(dict.fromkeys(pod for pod, _ in self._node.given))

    def drivers(self) -> Reply:
        """{driver: [{"endpoint", "connected", "service"}, ...]}: the registered instances of DRA drivers."""
        cluster = self._running().cluster
        known = cluster.drivers.instances if cluster is not None else {}
        return {
            driver: [
                {"endpoint": str(it.endpoint), "connected": it.connected, "service": it.service} for it in instances
            ]
            for driver, instances in known.items()
            if instances
        }

    def sources_ready(self, value: bool = True) -> None:
        """Sets whether all pod sources have been read. Before that no device is freed."""
        self._running().incarnation.sources_ready = value

    # events

    async def wait_for(
        self,
        predicate: Callable[[], T],
        timeout: float | None = 30,  # noqa: ASYNC109  its expiry tells more than asyncio.timeout's
    ) -> T:
        """Evaluates `predicate` now and after every event; returns its first true value. Raises TimeoutError."""
        try:
            async with asyncio.timeout(timeout):
                return await self.journal.wait(predicate)
        except TimeoutError as error:
            last = "; ".join(str(event) for event in self.events[-5:])
            raise TimeoutError(f"not within {timeout} s; last events: {last}") from error

    async def wait_for_event(self, kind: str, since: int = 0, **fields: object) -> KubeletEvent:
        """Waits up to 30 seconds for an event with these fields, ignoring the first `since` events."""

        def found() -> KubeletEvent | None:
            events = (one for one in self.events[since:] if one.kind == kind)
            return next((one for one in events if all(one.fields.get(it) == fields[it] for it in fields)), None)

        event = await self.wait_for(found)
        assert event is not None  # noqa: S101
        return event

    # calls that no pod makes

    async def allocate(self, resource: str, ids: Sequence[str]) -> Answer | None:
        """Calls Allocate without any bookkeeping. Raises PluginError."""
        return await self._endpoint(resource).allocate(ids)

    async def prefer(self, resource: str, available: Sequence[str], must: Sequence[str], size: int) -> set[str]:
        """Calls GetPreferredAllocation, whatever the plugin's options are. Raises PluginError."""
        return await self._endpoint(resource).prefer(available, must, size)

    async def pre_start(self, resource: str, ids: Sequence[str]) -> None:
        """Calls PreStartContainer, whatever the plugin's options are. Raises PluginError."""
        await self._endpoint(resource).pre_start(ids)

    async def register(self, resource: str, endpoint: str, version: str) -> None:
        """Registers as a plugin does. Raises GRPCError with the kubelet's message."""
        await self._running().register(Registration(version, endpoint, resource))

    # mischief

    def drop_streams(self, resource: str | None = None) -> int:
        """Breaks the connections to a resource's plugins, or to all plugins; returns their number."""
        return self._running().connections.drop(resource)

    def touch_socket(self) -> None:
        """Sets kubelet.sock's mode to its present mode: a new ctime for the same file, without a CREATE event."""
        self._socket.chmod(self._socket.stat().st_mode)

    def rename_socket(self) -> None:
        """Renames kubelet.sock away and back: a watch of the directory sees a new name for the same file."""
        aside = self._socket.with_name(".kubelet.sock.aside")
        self._socket.rename(aside).rename(self._socket)

    def delete_socket(self) -> None:
        """Deletes kubelet.sock under the running kubelet; open connections stay."""
        self._socket.unlink()

    async def recreate_socket(self) -> None:
        """Deletes kubelet.sock and creates it again, in the same incarnation; open connections stay."""
        self._socket.unlink(missing_ok=True)
        await self._running().listen()

    @property
    def _socket(self) -> Path:
        return self._running().socket

    def _endpoint(self, resource: str) -> PluginClient:
        endpoint = self._running().connections.endpoints.get(resource)
        if endpoint is None:
            raise NotRunningError(f"no plugin is registered for {resource}")
        return endpoint.reach()

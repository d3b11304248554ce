"""PodResources List, on pod-resources/kubelet.sock in the kubelet's --root-dir: the devices of each container.

pkg/kubelet/apis/podresources/server_v1.go and server_v1alpha1.go; GetDevices in cm/devicemanager/pod_devices.go.
"""

from collections.abc import Mapping
from functools import partial

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from dpgateway_simulator.kubelet.dra.claims import ClaimManager
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.pods import Pod
from dpgateway_simulator.wire import sockets, v1
from dpgateway_simulator.wire.server import GoServer

NAMESPACE = "default"
REFILL = 10  # calls per second, for each call of the burst: 100 QPS with a burst of 10


class PodResourcesServer:
    """The API of one incarnation. It isn't served without a --root-dir, nor by releases before the API.

    `claims`: those of the node's pods; None in a kubelet of no cluster.
    """

    def __init__(self, incarnation: Incarnation, pods: Mapping[str, Pod], finished: Mapping[str, Pod]) -> None:
        self._incarnation, self._behaviour, self._pods = incarnation, incarnation.behaviour, pods
        self._finished = finished if self._behaviour.lists_finished else {}
        self._tokens, self._filled = float(self._behaviour.list_burst or 0), incarnation.now()
        self.claims: ClaimManager | None = None
        self._server = GoServer([self])
        incarnation.at_end(self._server.end)

    def __mapping__(self) -> dict[str, Handler]:
        request, answer = v1.ListPodResourcesRequest, v1.ListPodResourcesResponse
        return {
            f"/{api}.PodResourcesLister/List": Handler(
                partial(self._list, api), Cardinality.UNARY_UNARY, request, answer
            )
            for api in self._behaviour.lists
        }

    async def listen(self) -> None:
        root = self._incarnation.node.root
        if root is None or not self._behaviour.lists:
            return
        socket = root / "pod-resources" / "kubelet.sock"
        socket.parent.mkdir(exist_ok=True)
        socket.unlink(missing_ok=True)
        await self._server.listen(sockets.bound(socket))

    async def _list(self, api: str, stream: Stream[v1.ListPodResourcesRequest, v1.ListPodResourcesResponse]) -> None:
        await stream.recv_message()

        # A token bucket: golang.org/x/time/rate, by WithRateLimiter in pkg/kubelet/apis/grpc/ratelimit.go.
        burst, now = self._behaviour.list_burst, self._incarnation.now()
        if burst is not None:
            self._tokens = min(burst, self._tokens + (now - self._filled) * burst * REFILL)
            self._filled = now
            if self._tokens < 1:
                raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
            self._tokens -= 1

        # UpdateAllocatedDevices: List frees the devices of deleted pods, without writing the checkpoint.
        if self._behaviour.list_frees and self._incarnation.sources_ready:
            self._incarnation.ledger.keep_only(one.uid for one in self._pods.values())

        # Of init containers only restartable ones are listed, and those from 1.29 on.
        listed = []
        for pod in (*self._pods.values(), *self._finished.values()):
            sidecars = [one for one in pod.init if one.restartable and self._behaviour.sidecars]
            names = [one.name for one in (*sidecars, *pod.containers)]
            containers = [
                v1.ContainerResources(name, self._devices(pod.uid, name, api), self._claims(pod, name, api))
                for name in names
            ]
            listed.append(v1.PodResources(pod.name, NAMESPACE, containers))
        await stream.send_message(v1.ListPodResourcesResponse(listed))

    def _claims(self, pod: Pod, container: str, api: str) -> list[v1.DynamicResource]:
        if self.claims is None or not self._behaviour.dynamic_resources or api != "v1":
            return []
        found: dict[str, list[v1.ClaimResource]] = {}
        for claim, one in self.claims.devices(pod, container):
            names = [v1.CdiDevice(name) for name in one.cdi]
            share = one.share if one.share and self._behaviour.share_ids else None
            found.setdefault(claim, []).append(v1.ClaimResource(names, one.driver, one.pool, one.device, share))
        return [v1.DynamicResource(claim, NAMESPACE, resources) for claim, resources in found.items()]

    def _devices(self, pod: str, container: str, api: str) -> list[v1.ContainerDevices]:
        # 1.20 lists a resource once per NUMA node, later releases once per device and node. -1 is the node of devices
        # without topology, as in the checkpoint.
        entries, found = self._behaviour.list_entries, []
        for holding in self._incarnation.ledger.of_container(pod, container):
            by_node = {-1: sorted(holding.ids)} if entries == "resource" else holding.by_node
            for node, ids in by_node.items():
                nodes = [v1.NumaNode(node)] if node >= 0 else []
                near = v1.TopologyInfo(nodes) if api == "v1" else v1.TopologyInfo()  # unset, while an empty list is set
                groups = [[one] for one in sorted(ids)] if entries == "device" else [sorted(ids)]
                found += [v1.ContainerDevices(holding.resource, group, near) for group in groups]
        return found

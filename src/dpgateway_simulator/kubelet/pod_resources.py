"""PodResources List, on pod-resources/kubelet.sock in the kubelet's --root-dir: the devices of each container.

pkg/kubelet/apis/podresources/server_v1.go and server_v1alpha1.go; GetDevices in cm/devicemanager/pod_devices.go.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.ledger import Holding
from dpgateway_simulator.kubelet.pods import Pod, PodContainer
from dpgateway_simulator.wire import sockets, v1
from dpgateway_simulator.wire.server import GoServer

NAMESPACE = "default"
REFILL = 10  # calls per second, for each call of the burst: 100 QPS with a burst of 10


class PodResourcesServer:
    """The API of one incarnation. It isn't served without a --root-dir, nor by releases before the API."""

    def __init__(self, incarnation: Incarnation, pods: Mapping[str, Pod], finished: Mapping[str, Pod]) -> None:
        self._incarnation, self._behaviour, self._pods = incarnation, incarnation.behaviour, pods
        self._finished = finished if self._behaviour.lists_finished else {}
        self._tokens, self._filled = float(self._behaviour.list_burst or 0), incarnation.now()
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
        self._take()
        # UpdateAllocatedDevices: List frees the devices of deleted pods, without writing the checkpoint.
        ledger = self._incarnation.ledger
        if self._incarnation.sources_ready and ledger.keep_only(self._pods):
            ledger.recount()
        listed = (*self._pods.values(), *self._finished.values())
        pods = [v1.PodResources(pod.name, NAMESPACE, self._containers(pod, api)) for pod in listed]
        await stream.send_message(v1.ListPodResourcesResponse(pods))

    def _take(self) -> None:
        """Takes a token: golang.org/x/time/rate, as used by WithRateLimiter in pkg/kubelet/apis/grpc/ratelimit.go."""
        burst, now = self._behaviour.list_burst, self._incarnation.now()
        if burst is None:
            return
        self._tokens = min(burst, self._tokens + (now - self._filled) * burst * REFILL)
        self._filled = now
        if self._tokens < 1:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self._tokens -= 1

    def _containers(self, pod: Pod, api: str) -> list[v1.ContainerResources]:
        # Of init containers only restartable ones are listed, and those from 1.29 on.
        sidecars = [one for one in pod.init if one.restartable and self._behaviour.sidecars]
        return [v1.ContainerResources(one.name, self._devices(pod, one, api)) for one in (*sidecars, *pod.containers)]

    def _devices(self, pod: Pod, container: PodContainer, api: str) -> list[v1.ContainerDevices]:
        holdings = self._incarnation.ledger.of_container(pod.name, container.name)
        return [
            v1.ContainerDevices(holding.resource, ids, _near(node) if api == "v1" else v1.TopologyInfo())
            for holding in holdings
            for node, ids in self._entries(holding)
        ]

    def _entries(self, holding: Holding) -> Iterator[tuple[int | None, list[str]]]:
        # 1.20 lists a resource once per NUMA node, later releases once per device and node.
        if self._behaviour.list_entries == "resource":
            yield None, sorted(holding.ids)
            return
        for node, ids in holding.by_node.items():
            if self._behaviour.list_entries == "node":
                yield node, sorted(ids)
            else:
                yield from ((node, [one]) for one in sorted(ids))


def _near(node: int | None) -> v1.TopologyInfo:
    """The topology of an entry; empty for the checkpoint's node -1, which stands for a device without topology."""
    return v1.TopologyInfo([] if node is None or node < 0 else [v1.NumaNode(node)])

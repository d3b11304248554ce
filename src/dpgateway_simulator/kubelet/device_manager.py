"""The device manager of one incarnation: its composition and its start.

Start in pkg/kubelet/cm/devicemanager/manager.go.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import partial

from dpgateway_simulator.kubelet import checkpoint, store
from dpgateway_simulator.kubelet.clients import ClientConnections
from dpgateway_simulator.kubelet.cluster_side import ClusterSide
from dpgateway_simulator.kubelet.connections import (
    FirstListConnections,
    NewestConnections,
    PluginConnections,
    ReplacingConnections,
)
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.pod_directories import RootDirectory
from dpgateway_simulator.kubelet.pod_resources import PodResourcesServer
from dpgateway_simulator.kubelet.registration import register
from dpgateway_simulator.kubelet.workload import Workload
from dpgateway_simulator.wire import sockets
from dpgateway_simulator.wire.dialects import DIALECTS
from dpgateway_simulator.wire.server import GoServer

_CONNECTIONS: Mapping[str, Callable[[Incarnation], PluginConnections]] = {
    "first list": FirstListConnections,
    "replaced": ReplacingConnections,
    "newest": NewestConnections,
    "one": ClientConnections,
    "many": ClientConnections,
}


class DeviceManager:
    """Registrations and pods of one incarnation, behind kubelet.sock."""

    def __init__(self, incarnation: Incarnation) -> None:
        behaviour = incarnation.behaviour
        self.incarnation = incarnation
        self.socket = incarnation.node.directory / store.SOCKET
        self.connections = _CONNECTIONS[behaviour.clients](incarnation)
        directories = RootDirectory(incarnation)
        self.workload = Workload(incarnation, self.connections, directories)
        pods, finished = self.workload.pods, self.workload.finished
        incarnation.tasks.spawn("kubelet: pods' directories", directories.clean(ChainMap(pods, finished)))
        self._pod_resources = PodResourcesServer(incarnation, pods, finished)
        self.register = partial(register, incarnation, self.connections)
        root, node = incarnation.node.root, incarnation.node.cluster
        self.cluster: ClusterSide | None = None
        if root is not None and node is not None:
            self.cluster = ClusterSide(incarnation, root, node, self.connections, self.workload)
            self._pod_resources.claims = self.cluster.claims
        self._server = GoServer([DIALECTS[behaviour.api].service(self.register)])
        incarnation.at_end(self.connections.close)
        incarnation.at_end(self._server.end)

    async def start(self) -> None:
        """Reads the checkpoint, then cleans the directory, then listens: every release's order."""
        behaviour, directory = self.incarnation.behaviour, self.incarnation.node.directory
        try:
            found = store.load(directory, behaviour)
        except checkpoint.CorruptError as error:
            self.incarnation.emit("checkpoint lost", reason=str(error))
            found = checkpoint.Checkpoint()
        for holding in found.holdings:
            self.incarnation.ledger.hold(holding)
        self.incarnation.ledger.recount()

        # Registered resources count as known without devices until their plugins are back.
        for resource in found.registered:
            self.incarnation.ledger.expect(resource)
            self.connections.expect(resource)
        store.prepare(directory, behaviour)
        await self.listen()
        await self._pod_resources.listen()
        if behaviour.deprecation_file:
            (directory / "DEPRECATION").touch()
        if self.cluster is not None:
            self.cluster.start()
        self.incarnation.emit("started", version=behaviour.version, directory=str(directory))

    async def listen(self) -> None:
        """Creates kubelet.sock and serves on it. Connections on an older kubelet.sock stay open."""
        sock = sockets.bound(self.socket)
        self.incarnation.emit("socket created", path=str(self.socket))
        try:
            # bind() creates the file, listen() comes later: a client that watches for CREATE may be refused.
            if self.incarnation.node.misbehaviour.late_listen:
                await self.incarnation.sleep(self.incarnation.node.misbehaviour.late_listen)
            await self._server.listen(sock)
        except BaseException:
            sock.close()
            raise

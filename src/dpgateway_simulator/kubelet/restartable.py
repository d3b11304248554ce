"""A simulated kubelet on one directory, from incarnation to incarnation: start, stop, kill, restart, upgrade.

`_manager` belongs to the current incarnation, or to the last one if none runs: `crashed`, `pods` and `restart` still
read it. A start first waits for the tasks of the previous incarnation, which a crash may have left.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dpgateway_simulator.kubelet import topology
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.clock import KubeletClock, RealClock
from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.device_manager import DeviceManager
from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError
from dpgateway_simulator.kubelet.events import EventLog
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.node import Misbehaviour, SimulatedNode
from dpgateway_simulator.kubelet.releases import behaviour

Reply = dict[str, Any]


class Restartable:
    """A sequence of incarnations, of one release or several. Nothing runs between two incarnations."""

    def __init__(  # noqa: PLR0913  a node has them
        self,
        version: str,
        directory: str | os.PathLike[str],
        *,
        clock: KubeletClock | None = None,
        policy: str = "none",
        numa: int = 1,
        cluster: ClusterNode | None = None,
    ) -> None:
        if policy not in topology.POLICIES:
            raise ValueError(f"unknown topology policy {policy!r}, expected one of {', '.join(topology.POLICIES)}")
        self.behaviour: Behaviour = behaviour(version)
        self.clock = clock or RealClock()
        self.journal = EventLog(self.clock.time)
        self.events = self.journal.events
        self.misbehaviour = Misbehaviour()
        self._node = SimulatedNode(
            Path(directory).absolute(),
            self.clock,
            self.journal,
            self.misbehaviour,
            policy,
            tuple(range(numa)),
            cluster=cluster,
        )
        self.directory = self._node.directory
        if cluster is not None and self._node.root is None:
            raise ValueError(f"a kubelet of a cluster needs a directory called device-plugins, found {directory}")
        self._manager: DeviceManager | None = None  # of the current incarnation, or of the last one

    @property
    def version(self) -> str:
        return self.behaviour.version

    @property
    def running(self) -> bool:
        return self._manager is not None and not self._manager.incarnation.ended

    @property
    def crashed(self) -> str:
        """The last incarnation's panic; empty without one."""
        return self._manager.incarnation.crashed if self._manager else ""

    async def start(self, *, sources_ready: bool = True, running: Iterable[str] = ()) -> None:
        """Starts and serves kubelet.sock. `running`: each "pod/container" that the container runtime finds running.

        The pods of a cluster, and their containers, are found without being named.
        """
        await self._start(sources_ready, running)
        manager = self._running()
        if manager.cluster is not None:
            manager.incarnation.tasks.spawn("kubelet: pods", manager.cluster.workers.run())

    async def _start(self, sources_ready: bool, running: Iterable[str]) -> None:
        if self.running:
            raise RuntimeError("the kubelet is running already")
        if self._manager is not None:
            await self._manager.incarnation.tasks.end()
        found = frozenset((pod, name) for pod, _, name in (one.partition("/") for one in running))
        if self._node.cluster is None:
            for one in self._node.given.keys() - found:
                del self._node.given[one]
        else:
            found |= self._node.given.keys()
            sources_ready = False
        incarnation = Incarnation(self._node, self.behaviour, sources_ready=sources_ready, found_running=found)
        self._manager = DeviceManager(incarnation)
        try:
            await self._manager.start()
        except BaseException:
            incarnation.end("start failed")
            raise

    async def stop(self) -> None:
        """Stops the kubelet as SIGTERM does. All releases but 1.8 remove kubelet.sock."""
        manager = self._running()
        manager.incarnation.end("stopped")
        await manager.incarnation.tasks.end()
        if self.behaviour.removes_socket:
            manager.socket.unlink(missing_ok=True)

    async def kill(self) -> None:
        """Kills the kubelet: kubelet.sock and the checkpoint stay as they are. Does nothing if it isn't running."""
        if self._manager is not None:
            self._manager.incarnation.end("killed")
            await self._manager.incarnation.tasks.end()

    async def restart(self, *, graceful: bool = False) -> list[Reply]:
        """Kills (or stops) and starts the kubelet, and admits its pods again, as a real one does. A reply per pod."""
        old = self._running().workload if graceful else self._manager and self._manager.workload
        await (self.stop() if graceful else self.kill())
        pods = [one for one in old.pods.values() if not one.object_uid] if old else []
        running = [f"{pod}/{name}" for pod, name in (old.started if old else ())]

        # No device may be freed before all pods are back, as in a real kubelet before its sources are ready.
        await self._start(not pods, running)
        new = self._running()
        replies = [{"pod": pod.name, **await new.workload.admit(pod, start=False)} for pod in pods]
        if new.cluster is None:
            new.incarnation.sources_ready = True
        else:
            new.incarnation.tasks.spawn("kubelet: pods", new.cluster.workers.run())
        return replies

    async def reboot(self) -> list[Reply]:
        """Restarts the node: no container runs, and the runtime's last directory of CDI specs is empty, as /run is."""
        await self.kill()
        if self._manager is not None:
            for pod in {pod for pod, _ in self._node.given}:
                self._manager.workload.stop(pod)
        if self._node.cluster is not None:
            self._node.cluster.reboot()
        return await self.restart()

    async def upgrade(self, version: str) -> list[Reply]:
        """Restarts as another version, newer or older, on the same directory. A reply per pod."""
        new = behaviour(version)
        if self.running:
            await self.stop()
        self.behaviour = new
        return await self.restart()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    def _running(self) -> DeviceManager:
        if self.crashed:
            raise Crashed(self.crashed)
        if self._manager is None or self._manager.incarnation.ended:
            raise NotRunningError("the kubelet isn't running")
        return self._manager

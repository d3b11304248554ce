"""State that outlives an incarnation: the node, and the faults injected into its kubelet."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpclib.const import Status

from dpgateway_simulator.kubelet.clock import KubeletClock
from dpgateway_simulator.kubelet.cluster_node import ClusterNode
from dpgateway_simulator.kubelet.events import EventLog


@dataclass
class Misbehaviour:
    """Injected faults: refusals, stalls and delays of Register, and late listening. They last until `behave`, through
    restarts. The key None stands for all resources. `behave` sets `_released` and replaces it, which wakes every
    stalled call once.
    """

    refusals: dict[str | None, tuple[Status, str]] = field(default_factory=dict)
    stalled: set[str | None] = field(default_factory=set)
    late_listen: float = 0.0  # seconds between the creation of kubelet.sock and listening on it
    register_delay: float = 0.0  # seconds before a Register is processed
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def refuse_register(self, text: str, code: str = "UNKNOWN", resource: str | None = None) -> None:
        """From now on Register fails with this error. `code` is the name of a gRPC status."""
        self.refusals[resource] = (Status[code.upper()], text)

    def stall_register(self, resource: str | None = None) -> None:
        """From now on Register hangs without any effect."""
        self.stalled.add(resource)

    def behave(self) -> None:
        """Ends all misbehaviour; stalled calls continue."""
        self.refusals.clear()
        self.stalled.clear()
        self.late_listen = self.register_delay = 0.0
        self._released.set()
        self._released = asyncio.Event()

    def refusal(self, resource: str) -> tuple[Status, str] | None:
        return self.refusals.get(resource) or self.refusals.get(None)

    async def stall(self, resource: str) -> None:
        while {resource, None} & self.stalled:
            await self._released.wait()


@dataclass(frozen=True)
class SimulatedNode:
    """A node. `policy` is the topology manager's, `numa` contains the numbers of the machine's NUMA nodes."""

    directory: Path
    clock: KubeletClock
    journal: EventLog
    misbehaviour: Misbehaviour
    policy: str = "none"
    numa: tuple[int, ...] = (0,)
    pod_directories: set[str] = field(default_factory=set)  # of pods, by uid, that simulated kubelets made
    pod_names: dict[str, str] = field(default_factory=dict)  # of the pods that were ever here, by uid
    given: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """What each running (pod, container) was started with: the container runtime's memory."""
    cluster: ClusterNode | None = None

    @property
    def root(self) -> Path | None:
        """The kubelet's --root-dir, /var/lib/kubelet; None if the directory isn't called device-plugins as below it."""
        return self.directory.parent if self.directory.name == "device-plugins" else None

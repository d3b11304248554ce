"""What stays when a kubelet ends and starts again: its node, with what the kubelet is told to do wrong or late."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from grpclib.const import Status

from dpgateway_simulator.kubelet.clock import KubeletClock
from dpgateway_simulator.kubelet.events import EventLog


@dataclass
class Misbehaviour:
    """Refuses, stalls and delays Register, and listens late, until `behave`, through all restarts. None means all
    resources.
    """

    refusals: dict[str | None, tuple[Status, str]] = field(default_factory=dict)
    stalled: set[str | None] = field(default_factory=set)
    late_listen: float = 0.0  # seconds between the creation of kubelet.sock and listening on it
    register_delay: float = 0.0  # seconds before a Register is looked at
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def refuse_register(self, text: str, code: str = "UNKNOWN", resource: str | None = None) -> None:
        """From now on Register answers with this error. `code` is the name of a gRPC status."""
        self.refusals[resource] = (Status[code.upper()], text)

    def stall_register(self, resource: str | None = None) -> None:
        """From now on Register does nothing and doesn't answer."""
        self.stalled.add(resource)

    def behave(self) -> None:
        """Ends all misbehaviour; stalled calls go on."""
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
    """`policy` is the topology manager's, `numa` are the numbers of the machine's NUMA nodes."""

    directory: Path
    clock: KubeletClock
    journal: EventLog
    misbehaviour: Misbehaviour
    policy: str = "none"
    numa: tuple[int, ...] = (0,)
    pod_directories: set[str] = field(default_factory=set)  # of pods, by uid, that simulated kubelets made

    @property
    def root(self) -> Path | None:
        """The kubelet's --root-dir, /var/lib/kubelet; None if the directory isn't called device-plugins as below it."""
        return self.directory.parent if self.directory.name == "device-plugins" else None

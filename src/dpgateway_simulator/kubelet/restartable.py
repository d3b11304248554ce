"""The lives of a simulated kubelet on one directory: start, stop, kill, restart, upgrade."""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dpgateway_simulator.kubelet import topology, workload
from dpgateway_simulator.kubelet.behaviour import Behaviour, behaviour
from dpgateway_simulator.kubelet.clock import Clock, RealClock
from dpgateway_simulator.kubelet.device_manager import Incarnation, Node, Start
from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError
from dpgateway_simulator.kubelet.events import Journal
from dpgateway_simulator.kubelet.misbehaviour import Misbehaviour

Reply = dict[str, Any]


class Lives:
    """One kubelet after another, or the same one again. Between two of them nothing runs."""

    def __init__(
        self,
        version: str,
        directory: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        policy: str = "none",
        numa: int = 1,
    ) -> None:
        if policy not in topology.POLICIES:
            raise ValueError(f"unknown topology policy {policy!r}, expected one of {', '.join(topology.POLICIES)}")
        self.behaviour: Behaviour = behaviour(version)
        self.clock = clock or RealClock()
        self.journal = Journal(self.clock.time)
        self.misbehaviour = Misbehaviour()
        self._node = Node(
            Path(directory).absolute(), self.clock, self.journal, self.misbehaviour, policy, tuple(range(numa))
        )
        self._life: Incarnation | None = None

    @property
    def version(self) -> str:
        return self.behaviour.version

    @property
    def directory(self) -> Path:
        return self._node.directory

    @property
    def running(self) -> bool:
        return self._life is not None and not self._life.ended

    @property
    def crashed(self) -> str:
        """Why the last life panicked; empty if it didn't."""
        return self._life.crashed if self._life else ""

    async def start(self, *, sources_ready: bool = True, running: Iterable[str] = ()) -> None:
        """Starts and serves kubelet.sock. `running`: "pod/container" that the container runtime finds running."""
        if self.running:
            raise RuntimeError("the kubelet is running already")
        if self._life is not None:
            await self._life.finish()
        found = frozenset((pod, name) for pod, _, name in (one.partition("/") for one in running))
        self._life = Incarnation(self._node, self.behaviour, Start(sources_ready, found))
        try:
            await self._life.start()
        except BaseException:
            self._life.end("start failed")
            raise

    async def stop(self) -> None:
        """Ends in order: kubelet.sock is removed (1.8 leaves it)."""
        life = self._running()
        life.end("stopped")
        await life.finish()
        if self.behaviour.allocates != "start":
            life.socket.unlink(missing_ok=True)

    async def kill(self) -> None:
        """Ends at once: kubelet.sock and the checkpoint stay as they are. No error if it isn't running."""
        if self._life is not None:
            self._life.end("killed")
            await self._life.finish()

    async def restart(self, *, graceful: bool = False) -> list[Reply]:
        """Ends and starts again, and admits the pods it had anew, as a real kubelet does; what became of them."""
        life = self._running() if graceful else self._life
        await (self.stop() if graceful else self.kill())
        pods = list(life.pods.values()) if life else []
        running = [f"{pod}/{name}" for pod, name in (life.started if life else ())]
        await self.start(sources_ready=not pods, running=running)
        new = self._running()
        replies = [{"pod": pod.name, **await workload.admit(new, pod, start=False)} for pod in pods]
        new.life.sources_ready = True
        return replies

    async def upgrade(self, version: str) -> list[Reply]:
        """Stops and starts as another version, newer or older, in the same directory; what became of its pods."""
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

    def _running(self) -> Incarnation:
        if self._life is not None and self._life.crashed:
            raise Crashed(self._life.crashed)
        if self._life is None or self._life.ended:
            raise NotRunningError("the kubelet isn't running")
        return self._life

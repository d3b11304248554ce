"""One life of a simulated kubelet: its parts put together, its beginning and its end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway_simulator.kubelet import checkpoint, registration, store
from dpgateway_simulator.kubelet.admission import Admission
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.clock import Clock
from dpgateway_simulator.kubelet.connections import Connections
from dpgateway_simulator.kubelet.errors import Crashed
from dpgateway_simulator.kubelet.events import Journal
from dpgateway_simulator.kubelet.generations import connections
from dpgateway_simulator.kubelet.incarnation import Life
from dpgateway_simulator.kubelet.ledger import Ledger
from dpgateway_simulator.kubelet.misbehaviour import Misbehaviour
from dpgateway_simulator.kubelet.pods import Pod
from dpgateway_simulator.wire import sockets
from dpgateway_simulator.wire.transport import GoServer


@dataclass(frozen=True)
class Node:
    """What stays the same when a kubelet starts again."""

    directory: Path
    clock: Clock
    journal: Journal
    misbehaviour: Misbehaviour
    policy: str
    machine: Sequence[int]


@dataclass(frozen=True)
class Start:
    """What a kubelet finds when it starts: whether its pod sources are read, and which containers run."""

    sources_ready: bool = True
    running: frozenset[tuple[str, str]] = field(default_factory=frozenset)


class Incarnation:
    """From `start` to `end`. `pods` are those that it has, `crashed` the reason of its panic."""

    def __init__(self, node: Node, behaviour: Behaviour, start: Start) -> None:
        self._node, self.behaviour = node, behaviour
        self.pods: dict[str, Pod] = {}
        self.started: set[tuple[str, str]] = set(start.running)
        self.admitting = asyncio.Lock()  # the kubelet admits one pod at a time
        self.ended, self.crashed = False, ""
        self.life = Life(
            behaviour,
            node.directory,
            node.clock,
            node.journal,
            Ledger(hides_unhealthy=behaviour.hides_unhealthy),
            self._save,
            self._crash,
            sources_ready=start.sources_ready,
            running=start.running,
        )
        self.connections: Connections = connections(self.life)
        self.admission = Admission(self.life, self.connections, self.pods, node.policy, node.machine)
        self.registrar = registration.Registrar(self.life, self.connections, node.misbehaviour)
        self._server = GoServer([registration.service(self.registrar, behaviour.package)])

    @property
    def socket(self) -> Path:
        return self._node.directory / store.SOCKET

    async def start(self) -> None:
        """Reads the checkpoint, cleans the directory, listens: in this order, as every release does."""
        self._load()
        store.prepare(self._node.directory, self.behaviour)
        await self.listen()
        if self.behaviour.deprecation_file:
            (self._node.directory / "DEPRECATION").touch()
        self._node.journal.emit("started", version=self.behaviour.version, directory=str(self._node.directory))

    async def listen(self) -> None:
        """Creates kubelet.sock and serves on it; connections that are open already stay."""
        sock = sockets.bound(self.socket)
        self._node.journal.emit("socket created", path=str(self.socket))
        try:
            if self._node.misbehaviour.late_listen:
                await self._node.clock.sleep(self._node.misbehaviour.late_listen)
            await self._server.listen(sock)
        except BaseException:
            sock.close()
            raise

    def end(self, kind: str, **about: str) -> None:
        """Everything of this process stops at once; `finish` waits for what is left of it."""
        if self.ended:
            return
        self.ended = True
        self.life.tasks.cancel()
        self.connections.close()
        self._server.end()
        self._node.journal.emit(kind, version=self.behaviour.version, **about)

    async def finish(self) -> None:
        await self.life.tasks.end()

    def _load(self) -> None:
        try:
            found = store.load(self._node.directory, self.behaviour)
        except checkpoint.CorruptError as error:
            self._node.journal.emit("checkpoint lost", reason=str(error))
            return
        for holding in found.holdings:
            self.life.ledger.hold(holding)
        self.life.ledger.recount()
        for resource in found.registered:
            self.life.ledger.expect(resource)
            self.connections.expect(resource)

    def _save(self) -> None:
        if not self.ended:
            store.save(self._node.directory, self.behaviour, self.life.ledger)

    def _crash(self, reason: str) -> Crashed:
        self.crashed = reason
        self.end("crashed", reason=reason)
        return Crashed(reason)

"""Pods that have ended, by the container runtime: their sandboxes are stopped, and none of their containers runs.

A pod's containers live in its sandbox, which a kubelet stops after the last container, up to 2 s before it removes the
pod's directory. A failed sandbox is stopped, too, and the kubelet then creates another one for the pod. So a stopped
sandbox proves the end of a pod only if the kubelet no longer lists the pod; that alone proves nothing, because a
kubelet doesn't list a static pod while it terminates it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpgateway.kit.channel import Channel
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import retry
from dpgateway.node.runtime import SERVICE, called, serving
from dpgateway.node.wire import cri_pb2 as wire

POD = "io.kubernetes.pod.uid"
"""The pod's uid as a label of its sandboxes and containers, in every version (pkg/kubelet/types/labels.go)."""
SOURCE, API = "kubernetes.io/config.source", "api"
"""The annotation that tells a static pod from one of the API server (pkg/kubelet/types/pod_update.go)."""
MOST_EVENTS, PAUSE = 100, 0.5
"""Throttle: a pause in seconds after so many events, because an endless stream of events would take a core."""

LARGEST = 16 * 1024 * 1024
"""Most bytes of an answer: the kubelet's own limit (pkg/utils.go of cri-client)."""

END_WITHIN = 5.0
"""Timeout in seconds for containers that end: of a pod that was deleted by force they have 2 s (1.31 to 1.37)."""
LOOK = 0.1
"""Seconds between two looks at them."""

Running = Callable[[frozenset[str]], Awaitable[frozenset[str] | None]]
"""Asks which of these pods, by uid, have a container that may run; None if unknown."""

_NO_ANSWER = grpc.aio.AioRpcError, DecodeError, OSError

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """The sandboxes of one runtime. Used from the event loop."""

    candidates: Sequence[Path]
    """For the runtime's socket; exactly one must exist."""
    stopped: Callable[[str], None]
    """Gets the pod's uid when a sandbox stops."""
    pause: float = PAUSE

    async def run(self) -> None:
        """Follows the runtime's events until cancelled; retries without a stream of events."""
        await retry(self._follow, self._failed)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, _NO_ANSWER):
            raise error
        _log.debug("the container runtime tells no events: %s", _details(error))

    async def _follow(self) -> None:
        there = serving(self.candidates)
        if there is None:
            raise FileNotFoundError(f"not one alone is there of {', '.join(map(str, self.candidates))}")
        async with Channel(there[0]) as channel:
            heard = 0
            async for raw in channel.unary_stream(f"{SERVICE}/GetContainerEvents")(b""):
                sandbox = wire.ContainerEventResponse.FromString(raw).pod_sandbox_status
                if sandbox.state == wire.SANDBOX_NOTREADY:
                    self.stopped(sandbox.metadata.uid)
                heard += 1
                if heard % MOST_EVENTS == 0:
                    await asyncio.sleep(self.pause)
        raise ConnectionResetError("the events have ended")

    async def ended(self, pods: Iterable[str]) -> frozenset[str]:
        """The pods, by uid, whose sandboxes exist, are stopped, and have no running container. A pod without a sandbox
        isn't among them, because it may be getting one.
        """
        there = serving(self.candidates)
        if there is None:
            return frozenset()
        try:
            async with Channel(there[0], LARGEST) as channel:
                ended = []
                for uid, found, states in await _of(channel, frozenset(pods)):
                    stopped = all(sandbox.state == wire.SANDBOX_NOTREADY for sandbox in found)
                    if found and stopped and {*states} <= {wire.CONTAINER_EXITED}:
                        ended.append(uid)
                return frozenset(ended)
        except _NO_ANSWER as error:
            _log.debug("the container runtime doesn't say what runs: %s", _details(error))
            return frozenset()

    async def running(self, pods: Iterable[str], *, static: bool = False) -> frozenset[str] | None:
        """The pods of the API server, by uid, that have a container which may run, now or soon; None if the runtime
        doesn't answer. ``static``: also of other pods.
        """
        there = serving(self.candidates)
        if there is None:
            return None
        try:
            async with Channel(there[0], LARGEST) as channel:
                running = []
                for uid, found, states in await _of(channel, frozenset(pods)):
                    if not static and any(sandbox.annotations.get(SOURCE, API) != API for sandbox in found):
                        continue
                    # What was created in stopped sandboxes never starts.
                    stopped = all(sandbox.state == wire.SANDBOX_NOTREADY for sandbox in found)
                    may = not states or any(state != wire.CONTAINER_EXITED for state in states)
                    if wire.CONTAINER_RUNNING in states if stopped else may:
                        running.append(uid)
                return frozenset(running)
        except _NO_ANSWER as error:
            _log.debug("the container runtime doesn't say what runs: %s", _details(error))
            return None


async def outlasting(ask: Running, pods: Callable[[], frozenset[str]], seconds: float) -> frozenset[str]:
    """Waits until none of the pods runs; returns those that still do after ``seconds``: all, if ``ask`` hasn't answered
    by then. It is believed, also if it knows nothing; but once it has said that a pod runs, silence proves no end.
    """
    running: frozenset[str] | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while asked := pods():
                said = await ask(asked)
                running = (running or frozenset()) & asked if said is None else said
                if not running:
                    return running
                await asyncio.sleep(LOOK)
            return frozenset()
    return pods() if running is None else running


async def _of(channel: Channel, pods: frozenset[str]) -> Sequence[tuple[str, Sequence[wire.PodSandbox], Sequence[int]]]:
    """Each pod's uid, sandboxes, and states of containers. Two questions, however many pods, because an end waits 5 s
    for the answer: a runtime's filter takes one uid, so several are found among all.
    """
    if not pods:
        return ()
    one = {POD: next(iter(pods))} if len(pods) == 1 else {}
    sandboxes: dict[str, list[wire.PodSandbox]] = {uid: [] for uid in pods}
    states: dict[str, list[int]] = {uid: [] for uid in pods}
    # Sandboxes come first, because no container starts in a stopped one.
    asked = wire.ListPodSandboxRequest(filter=wire.PodSandboxFilter(label_selector=one))
    for sandbox in (await called(channel, "ListPodSandbox", asked, wire.ListPodSandboxResponse)).items:
        if (uid := sandbox.labels.get(POD, "")) in pods:
            sandboxes[uid].append(sandbox)
    inside = wire.ListContainersRequest(filter=wire.ContainerFilter(label_selector=one))
    for container in (await called(channel, "ListContainers", inside, wire.ListContainersResponse)).containers:
        if (uid := container.labels.get(POD, "")) in pods:
            states[uid].append(container.state)
    return [(uid, sandboxes[uid], states[uid]) for uid in pods]


def _details(error: Exception) -> object:
    return error.details() if isinstance(error, grpc.aio.AioRpcError) else error

"""A kubelet and the pods of its node, through restarts and upgrades, whichever engine runs it."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.scenarios.engines import Engine, Make, Real, Reply
from tests.support.waiting import until

RESOURCE = "example.com/thing"
Containers = Mapping[str, Mapping[str, int]]
Counts = tuple[int | None, int | None]
First = Literal["pods", "plugin"] | None


@dataclass
class Pod:
    containers: Containers
    init: Containers
    started: set[str] = field(default_factory=set)


class Kubelet:
    def __init__(self, make: Make, release: str, directory: Path) -> None:
        self._make, self.release, self.directory = make, release, directory
        self.policy, self.numa = "none", 1
        self.pods: dict[str, Pod] = {}
        self.plugin_paused: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._engines: list[Engine] = []

    @property
    def minor(self) -> int:
        return int(self.release.partition(".")[2])

    @property
    def engine(self) -> Engine:
        return self._engines[-1]

    async def start(self, release: str = "", *, first: First = None) -> dict[str, Reply]:
        """Starts, admits the node's pods again, and tells what became of each.

        `first` says who comes first: "pods" are admitted before any plugin can be back, with "plugin" they are admitted
        once RESOURCE has devices. None leaves the race that there is on a node: pods come 40 to 145 ms after
        kubelet.sock (kubelet 1.37), and a plugin comes as fast as it can.
        """
        self.release = release or self.release
        if first is None and self.minor == 9:
            first = "pods"  # it would write its checkpoint for both at once, and garble it
        with self.plugin_paused() if first == "pods" else contextlib.nullcontext():
            return await self._start(first)

    async def _start(self, first: First) -> dict[str, Reply]:
        engine = self._make(self.release, self.directory, self.policy, self.numa)
        self._engines.append(engine)
        running = [f"{pod}/{name}" for pod, known in self.pods.items() for name in known.started]
        await engine.start(sources_ready=not self.pods, running=running)
        if first == "plugin":
            await engine.wait_for(lambda seen: bool(_counts(seen, RESOURCE)[1]), 30)
            await self._quiet()
        replies = {}
        for name, pod in list(self.pods.items()):
            replies[name] = await engine.admit(name, pod.containers, pod.init, start=False)
            if not replies[name]["ok"]:
                del self.pods[name]
        await engine.sources_ready()
        return replies

    async def end(self, *, graceful: bool = True) -> None:
        await self._quiet()
        await (self.engine.stop() if graceful else self.engine.kill())

    async def restart(self, release: str = "", *, graceful: bool = True, first: First = None) -> dict[str, Reply]:
        await self.end(graceful=graceful)
        return await self.start(release, first=first)

    async def close(self) -> None:
        for engine in self._engines:
            await engine.kill()

    def story(self) -> str:
        """What an error should show of it."""
        return self._engines[-1].story() if self._engines else "never started"

    async def end_older(self) -> None:
        """Kills those that ran before the last one and still run."""
        for engine in self._engines[:-1]:
            await engine.kill()

    async def counts(self, resource: str = RESOURCE) -> Counts:
        return _counts(await self.engine.capacity(), resource)

    async def wait_for(self, *wanted: Counts, resource: str = RESOURCE, timeout: float = 60) -> None:  # noqa: ASYNC109
        """Until capacity and allocatable are one of those wanted."""
        await self.engine.wait_for(lambda seen: _counts(seen, resource) in wanted, timeout)

    async def wait_for_devices(self, healthy: int, unhealthy: int = 0, *, resource: str = RESOURCE) -> None:
        """Until it has a list of so many devices, in the way of its release."""
        listed: Counts = (healthy, healthy) if self.minor < 10 else (healthy + unhealthy, healthy)
        hidden: Counts = (None, None)  # 1.8 doesn't mention a resource without a healthy device
        await self.wait_for(listed, *([hidden] if self.minor == 8 and not healthy else []), resource=resource)

    async def noted(self, count: int | None = None, seconds: float = 30) -> None:
        """Until its checkpoint has so many healthy devices; without a number, as many as it counts itself.

        From 1.9 on a kubelet writes the file at each list and after each admission, the one beside the other. If it is
        killed then, it may have undone the note of what it gave away. 1.8 writes only what it allocates.
        """
        if self.minor == 8:
            return
        path = self.directory / "kubelet_internal_checkpoint"

        async def is_whole() -> bool:
            return _is_whole(path, (await self.counts())[1] if count is None else count)

        await until(is_whole, seconds, found=lambda: path.read_text() if path.exists() else "there is no file")

    async def _quiet(self) -> None:
        """1.9 and 1.10 lose an admission that comes while they write a list down. 1.9 writes in place: it has forgotten
        everything if it ends meanwhile. Real ones may write an older list last, and then they write no more.
        """
        if self.minor in (9, 10):
            real = isinstance(self.engine, Real)
            with contextlib.suppress(AssertionError) if real else contextlib.nullcontext():
                await self.noted(seconds=1 if real else 30)

    async def admit(
        self, name: str, containers: Containers, init: Containers | None = None, *, start: bool = True
    ) -> Reply:
        await self._quiet()
        reply = await self.engine.admit(name, containers, init or {}, start=start)
        if reply.get("stage") != "admit":
            started = {one["name"] for one in reply.get("containers", ()) if "error" not in one}
            self.pods[name] = Pod(containers, init or {}, started & containers.keys())
        return reply

    async def start_container(self, pod: str, container: str = "c") -> Reply:
        return await self.engine.start_container(pod, container)

    async def remove(self, pod: str) -> None:
        del self.pods[pod]
        await self.engine.remove(pod)


def _is_whole(checkpoint: Path, healthy: int | None) -> bool:
    try:
        return not healthy or _registered(checkpoint) == healthy
    except (FileNotFoundError, json.JSONDecodeError):
        return False


def _registered(checkpoint: Path) -> int:
    written = json.loads(checkpoint.read_text())
    return len((written.get("Data", written).get("RegisteredDevices") or {}).get(RESOURCE) or ())


def _counts(seen: Mapping[str, Any], resource: str) -> Counts:
    return seen["capacity"].get(resource), seen["allocatable"].get(resource)


def devices(reply: Reply, container: str = "c") -> set[str]:
    """The ids that a container was given, which the simulated driver puts into its environment."""
    options = next(one["options"] for one in reply["containers"] if one["name"] == container)
    return {name.removeprefix("THING_") for name in options["envs"]} if options else set()

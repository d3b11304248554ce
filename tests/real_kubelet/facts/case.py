"""One fact's kubelet and plugins, and how what they do becomes a short text, the same in every run."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from dpgateway_simulator import Crashed
from tests.real_kubelet.device_manager import Died
from tests.real_kubelet.plugin import Plugin, dialect_of
from tests.scenarios.engines import Make
from tests.scenarios.kubelet import RESOURCE, First, Kubelet

ONE, TWO = {"c": {RESOURCE: 1}}, {"c": {RESOURCE: 2}}
DIRECTORY = "/var/lib/kubelet/device-plugins"
PANICS = "panics"
DASH = "-"
SHORT = {
    "GetDevicePluginOptions": "Options",
    "ListAndWatch": "List",
    "GetPreferredAllocation": "Prefer",
    "PreStartContainer": "PreStart",
}
QUIET, POLLS = 0.4, 20  # seconds in which nothing changes: no event says that nothing will happen


class Case:
    """`kubelet` isn't started yet, so that a fact may say how."""

    def __init__(self, make: Make, release: str, folder: Path) -> None:
        self.kubelet = Kubelet(make, release, folder / "device-plugins")
        self.directory, self.release = self.kubelet.directory, release
        self._plugins: list[Plugin] = []

    async def plugin(
        self,
        endpoint: str = "plugin.sock",
        *,
        devices: Mapping[str, str] | None = None,
        dialect: str = "",
        pre_start: bool = False,
        register: bool = True,
    ) -> Plugin:
        """One that serves; registered, and its list taken, unless told otherwise."""
        dialect = dialect or dialect_of(self.kubelet.release)
        plugin = Plugin(dialect, RESOURCE, self.directory, endpoint, pre_start=pre_start)
        plugin.devices = dict(plugin.devices if devices is None else devices)
        self._plugins.append(await plugin.serve())
        if register:
            await plugin.register()
            await self.listed(plugin)
        return plugin

    async def started(self, **how: Any) -> Plugin:
        """A kubelet and its plugin."""
        await self.kubelet.start()
        return await self.plugin(**how)

    async def listed(self, plugin: Plugin) -> None:
        healthy = sum(health == "Healthy" for health in plugin.devices.values())
        await self.kubelet.wait_for_devices(healthy, len(plugin.devices) - healthy)

    async def close(self) -> None:
        await self.kubelet.close()
        for plugin in self._plugins:
            await plugin.stop()

    # what becomes a text

    async def register(self, plugin: Plugin, **how: str) -> str:
        """ "accepted", or the error; how many seconds it took, in tens."""
        began = time.monotonic()
        try:
            await plugin.register(**how)
        except grpc.aio.AioRpcError as error:
            seconds = round((time.monotonic() - began) / 10) * 10  # kubelets wait 10 s; a busy machine some more
            late = f" after {seconds} s" if seconds else ""
            return self.plain(f"refused{late}: {error.code().name}: {error.details()}")
        return "accepted"

    async def admit(self, name: str, containers: Any = ONE, init: Any = None) -> str:
        """What becomes of a pod whose containers are started at once: "accepted", or the error."""
        try:
            reply = await self.kubelet.admit(name, containers, init)
        except (Died, Crashed):
            return PANICS
        return self.outcome(reply)

    async def restart(self, pod: str, release: str = "", *, first: First = "pods") -> str:
        """Restarts the kubelet; what becomes of a pod that runs."""
        try:
            replies = await self.kubelet.restart(release, graceful=False, first=first)
        except (Died, Crashed):
            return PANICS
        return self.outcome(replies[pod])

    def outcome(self, reply: Mapping[str, Any]) -> str:
        if reply["ok"]:
            return "accepted"
        reason = reply.get("reason")
        return self.plain(f"refused: {reason}: {reply['error']}" if reason else f"not started: {reply['error']}")

    async def counts(self, resource: str = RESOURCE) -> str:
        """Allocatable of capacity, as the node's status has them; "none" where it doesn't name the resource."""
        capacity, allocatable = await self.kubelet.counts(resource)
        if capacity is None and allocatable is None:
            return "none"
        return " of ".join(DASH if one is None else str(one) for one in (allocatable, capacity))

    async def counts_other_than(self, *before: str) -> str:
        await until(lambda: self._differs(before))
        return await self.counts()

    async def _differs(self, before: tuple[str, ...]) -> bool:
        return await self.counts() not in before

    async def end(self, plugin: Plugin) -> None:
        """Stops a plugin; returns when the kubelet has noticed, which only its log says, or the simulator's events."""
        wanted = self._ends() + len(plugin.of("ListAndWatch")) - plugin.ended
        await plugin.stop()
        await until(lambda: self._ends_are(wanted))

    async def _ends_are(self, wanted: int) -> bool:
        return self._ends() >= wanted

    def _ends(self) -> int:
        story = self.kubelet.story().lower()
        return story.count("listandwatch ended") + story.count("stream ended")

    async def settled(self, resource: str = RESOURCE) -> str:
        """The counts once they stay."""
        seen, since, same = await self.counts(resource), time.monotonic(), 0
        while same < POLLS or time.monotonic() - since < QUIET:  # both: plugins live in this process, which may stall
            await asyncio.sleep(QUIET / POLLS)
            same += 1
            if (now := await self.counts(resource)) != seen:
                seen, since, same = now, time.monotonic(), 0
        return seen

    def plain(self, text: str) -> str:
        """Without what isn't the kubelet's: a simulated one's directory, and grpcio's words around a plugin's error."""
        return text.replace(str(self.directory), DIRECTORY).replace("Unexpected <class 'ValueError'>: ", "")


async def until(condition: Callable[[], Awaitable[bool]], timeout: float = 50) -> None:  # noqa: ASYNC109
    """Asks every 5 ms, as DeviceManager.wait_for does, and for the same reason."""
    async with asyncio.timeout(timeout):
        while not await condition():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)


def devices(prefix: str, number: int, health: str = "Healthy") -> dict[str, str]:
    return {f"{prefix}{one}": health for one in range(number)}


def calls(plugin: Plugin, since: int = 0) -> str:
    """The methods that were called, in their order; how often if it was more than once."""
    names = [SHORT.get(name, name) for name, _ in plugin.calls[since:]]
    counted = ((name, len(list(same))) for name, same in itertools.groupby(names))
    return ", ".join(name if number == 1 else f"{number} {name}" for name, number in counted) or "nothing"

"""The two kinds of kubelet that scenarios run against, made alike: simulated ones, and the real device managers."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import dpgateway_simulator
from tests.real_kubelet.device_manager import DeviceManager

REAL = os.environ.get("DPGATEWAY_REAL_KUBELETS") == "1"
"""Whether scenarios run against real kubelets, of all releases, and not against simulated ones."""
Counted = Callable[[Mapping[str, Any]], bool]
Reply = Mapping[str, Any]
RUNS = 0.02
"""Seconds that a slow real kubelet runs at a time."""


class Engine(Protocol):
    """One kubelet release on one directory."""

    async def start(self, *, sources_ready: bool, running: Iterable[str]) -> None: ...
    async def stop(self) -> None: ...
    async def kill(self) -> None: ...
    def pause(self) -> None:
        """From now on it answers nobody, until `resume`."""

    def resume(self) -> None: ...
    def slow_down(self, seconds: float) -> None:
        """From now on a Register takes so long; with 0 it doesn't. What has begun may still take its time."""

    async def capacity(self) -> Reply: ...
    async def wait_for(self, counted: Counted, timeout: float) -> None: ...  # noqa: ASYNC109
    async def admit(self, pod: str, containers: Any, init: Any, *, start: bool) -> Reply: ...
    async def start_container(self, pod: str, container: str) -> Reply: ...
    async def remove(self, pod: str) -> None: ...
    async def sources_ready(self) -> None: ...
    def story(self) -> str:
        """What an error should show of it."""


Make = Callable[[str, Path, str, int], Engine]  # release, directory, topology policy, NUMA nodes


class Simulated:
    def __init__(self, release: str, directory: Path, policy: str, numa: int) -> None:
        self._kubelet = dpgateway_simulator.Kubelet(release, directory, policy=policy, numa=numa)

    async def start(self, *, sources_ready: bool, running: Iterable[str]) -> None:
        await self._kubelet.start(sources_ready=sources_ready, running=running)

    async def stop(self) -> None:
        await self._kubelet.stop()

    async def kill(self) -> None:
        await self._kubelet.kill()

    def pause(self) -> None:
        self._kubelet.misbehaviour.stall_register()

    def resume(self) -> None:
        self._kubelet.misbehaviour.behave()

    def slow_down(self, seconds: float) -> None:
        self._kubelet.misbehaviour.register_delay = seconds

    async def capacity(self) -> Reply:
        return self._kubelet.capacity()

    async def wait_for(self, counted: Counted, timeout: float) -> None:  # noqa: ASYNC109
        await self._kubelet.wait_for(lambda: counted(self._kubelet.capacity()), timeout)

    async def admit(self, pod: str, containers: Any, init: Any, *, start: bool) -> Reply:
        return await self._kubelet.admit(pod, containers, init, start)

    async def start_container(self, pod: str, container: str) -> Reply:
        return await self._kubelet.start_container(pod, container)

    async def remove(self, pod: str) -> None:
        self._kubelet.remove(pod)

    async def sources_ready(self) -> None:
        self._kubelet.sources_ready()

    def story(self) -> str:
        return "\n".join(map(str, self._kubelet.events))


class Real:
    def __init__(self, release: str, directory: Path, policy: str, numa: int) -> None:
        self._manager = DeviceManager(release, directory)
        self._policy, self._numa = policy, numa
        self._slow: asyncio.Task[None] | None = None

    async def start(self, *, sources_ready: bool, running: Iterable[str]) -> None:
        await self._manager.start(sources_ready=sources_ready, running=running, policy=self._policy, numa=self._numa)

    async def stop(self) -> None:
        self.slow_down(0)
        await self._manager.stop()

    async def kill(self) -> None:
        self.slow_down(0)
        await self._manager.kill()

    def pause(self) -> None:
        os.kill(self._manager.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._manager.pid, signal.SIGCONT)

    def slow_down(self, seconds: float) -> None:
        """All of it: its code can't be told to take longer, so it is stopped most of the time."""
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
            self._signal(signal.SIGCONT)
        if seconds:
            self._slow = asyncio.create_task(self._stutter(seconds), name="slow kubelet")

    async def _stutter(self, seconds: float) -> None:
        while True:
            self._signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self._signal(signal.SIGCONT)
            await asyncio.sleep(RUNS)

    def _signal(self, number: signal.Signals) -> None:
        if self._manager.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._manager.pid, number)

    async def capacity(self) -> Reply:
        return await self._manager.capacity()

    async def wait_for(self, counted: Counted, timeout: float) -> None:  # noqa: ASYNC109
        await self._manager.wait_for(counted, timeout)

    async def admit(self, pod: str, containers: Any, init: Any, *, start: bool) -> Reply:
        return await self._manager.admit(pod, containers, init, start=start)

    async def start_container(self, pod: str, container: str) -> Reply:
        return await self._manager.start_container(pod, container)

    async def remove(self, pod: str) -> None:
        await self._manager.remove(pod)

    async def sources_ready(self) -> None:
        await self._manager.sources_ready()

    def story(self) -> str:
        return self._manager.log()[-50_000:]

"""The gateway as a process of its own, as it runs on a node, with simulated devices."""

import asyncio
import contextlib
import hashlib
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.scenarios import counted
from tests.scenarios.kubelet import RESOURCE
from tests.scenarios.observer import Observer

COMMAND = [str(Path(sys.executable).with_name("dpgateway"))]
COUNTED = [sys.executable, counted.__file__]


class Gateway:
    """`log` has every line of every run. Devices are node-0, node-1, ...; change `resources` before `start`."""

    def __init__(self, folder: Path, device_plugins_dir: Path) -> None:
        self._folder, self._device_plugins_dir = folder, device_plugins_dir
        self.options: dict[str, Any] = {"count": 2, "env_prefix": "THING", "prepare": True}
        self.options["control_file"] = str(folder / "control.json")
        self.resource: dict[str, Any] = {"name": RESOURCE, "driver": "simulated", "options": self.options}
        self.resources = [self.resource]
        self.kubelet: dict[str, Any] = {}
        self.command = COMMAND
        self.log: list[str] = []
        self._more = asyncio.Condition()
        self._process: Process | None = None
        self._observer: Observer | None = None

    async def start(self) -> None:
        """Returns when it has been started, which isn't when it serves."""
        config = self._folder / "config.yaml"
        config.write_text(json.dumps({"resources": self.resources, "kubelet": self.kubelet}))  # JSON is YAML
        options = [f"--config={config}", f"--device-plugins-dir={self._device_plugins_dir}", "--node-name=node"]
        command = [*self.command, "run", *options, "--log-format=text", "--log-level=debug"]
        self._process = await asyncio.create_subprocess_exec(*command, stderr=PIPE)
        self._reader = asyncio.create_task(self._read(self._process), name="log of the gateway")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status."""
        if self._observer is not None:
            await self._observer.close()
            self._observer = None
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(10):
            await self._reader
            return await self._process.wait()

    async def observe(self) -> Observer:
        """Listens to it, beside the kubelet, until it ends."""
        name = hashlib.sha256(RESOURCE.encode()).hexdigest()[:16]
        self._observer = Observer(self._device_plugins_dir / f"dpgateway/{name}.sock")
        return self._observer

    async def registrations(self, least: int = 1) -> int:
        """How often it registered, once it was `least` times: a kubelet lists before it answers Register. Ends it,
        for its log comes a moment later than what it tells.
        """
        await self.wait_for_log(" registered resource=", count=least)
        assert await self.end() == 0
        return sum(" registered resource=" in line for line in self.log)

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            assert await self.end() == 0

    async def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        await self.end(number)
        await self.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing meanwhile, if it runs at all."""
        process = self._process if self._process is not None and self._process.returncode is None else None
        if process is not None:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if process is not None:
                process.send_signal(signal.SIGCONT)

    async def held(self) -> dict[str, Any]:
        """Its asyncio tasks, and the names of its Python threads. Needs the command `COUNTED`."""
        assert self._process is not None
        told = sum(counted.MARK in line for line in self.log)
        self._process.send_signal(signal.SIGUSR1)
        await self.wait_for_log(counted.MARK, count=told + 1)
        line = next(line for line in reversed(self.log) if counted.MARK in line)
        held: dict[str, Any] = json.loads(line.removeprefix(counted.MARK))
        return held

    def suffer(self, *faults: dict[str, Any]) -> None:
        """These are the simulated driver's faults from now on, and no others."""
        new = self._folder / "control.json.new"
        new.write_text(json.dumps({"faults": faults}))
        new.rename(self._folder / "control.json")

    async def wait_for_log(self, text: str, timeout: float = 10, count: int = 1) -> None:  # noqa: ASYNC109
        async with asyncio.timeout(timeout), self._more:
            await self._more.wait_for(lambda: sum(text in line for line in self.log) >= count)

    async def _read(self, process: Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            async with self._more:
                self.log.append(line.decode(errors="replace").rstrip())
                self._more.notify_all()

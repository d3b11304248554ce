"""The gateway of the scenarios: a process of its own, as on a node, with simulated devices."""

import contextlib
import hashlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.scenarios import counted
from tests.scenarios.kubelet import RESOURCE
from tests.scenarios.observer import Observer
from tests.support import gateway

COUNTED = (sys.executable, counted.__file__)
SAME = ("tasks", "threads", "descriptors", "sockets", "files")
"""What of its state stays the same, whatever it has been through."""


class Gateway(gateway.Gateway):
    """Its devices are node-0, node-1, ...; a test may change ``options`` and ``resource`` before a start."""

    log_format = "text"
    log_level = "debug"

    def __init__(self, folder: Path, device_plugins_dir: Path) -> None:
        super().__init__(folder, device_plugins_dir)
        self.options: dict[str, Any] = {"count": 2, "env_prefix": "THING", "prepare": True}
        self.options["control_file"] = str(folder / "control.json")
        self.resource: dict[str, Any] = {"name": RESOURCE, "driver": "simulated", "options": self.options}
        self.resources = [self.resource]
        self._observer: Observer | None = None

    async def observe(self) -> Observer:
        """Listens to it, beside the kubelet, until it ends."""
        name = hashlib.sha256(RESOURCE.encode()).hexdigest()[:16]
        self._observer = Observer(self.device_plugins_dir / f"dpgateway/{name}.sock")
        return self._observer

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        await self._end_observer()
        return await super().end(number)

    async def close(self) -> None:
        await self._end_observer()
        await super().close()

    async def _end_observer(self) -> None:
        if self._observer is not None:
            await self._observer.close()
            self._observer = None

    async def registrations(self, least: int = 1) -> int:
        """Ends it, and tells how often it registered. First it waits for ``least`` lines about that in the log, because
        a kubelet counts devices before it answers Register.
        """
        await self.said(" registered resource=", count=least)
        assert await self.end() == 0
        return sum(" registered resource=" in line for line in self.log)

    async def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        await self.end(number)
        await self.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing meanwhile, if it runs at all."""
        process = self.process if self.running else None
        if process is not None:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if process is not None:
                process.send_signal(signal.SIGCONT)

    async def held(self) -> dict[str, Any]:
        """Its asyncio tasks, and the names of its Python threads. Needs the command ``COUNTED``."""
        told = sum(counted.MARK in line for line in self.log)
        self.process.send_signal(signal.SIGRTMIN)
        await self.said(counted.MARK, count=told + 1)
        line = next(line for line in reversed(self.log) if counted.MARK in line)
        held: dict[str, Any] = json.loads(line.removeprefix(counted.MARK))
        return held

    async def state(self) -> dict[str, int]:
        """What it holds that could grow. ``pool``: threads that aren't Python's. Needs the command ``COUNTED``."""
        held = await self.held()
        used = self.used()
        threads = len(held["threads"])
        counts = {"tasks": held["tasks"], "threads": threads, "pool": used["threads"] - threads}
        return {**used, **counts, "files": len(self.names())}

    def suffer(self, *faults: dict[str, Any]) -> None:
        """These are the simulated driver's faults from now on, and no others."""
        new = self.folder / "control.json.new"
        new.write_text(json.dumps({"faults": faults}))
        new.rename(self.folder / "control.json")

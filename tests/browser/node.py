"""A node whose gateway has something to show: simulated devices, pods that hold some of them, and faults on demand."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dpgateway_simulator import Kubelet
from tests.support.gateway import Gateway

SERIAL, BOARD, CAMERA = (f"example.com/{name}" for name in ("serial", "fpga", "camera"))
COUNTS = {SERIAL: 8, BOARD: 4, CAMERA: 3}


class Node:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kubelet = Kubelet("1.37", folder / "device-plugins")
        self.gateway = Gateway(folder, folder / "device-plugins")
        self.gateway.web = {"listen": "127.0.0.1:0"}

    async def start(self) -> str:
        """Where the page is."""
        await self.gateway.start(*map(self._resource, COUNTS))
        await self.kubelet.start()
        await self.kubelet.wait_for(lambda: all(self.kubelet.counts(name)[1] == COUNTS[name] for name in COUNTS))
        await self.gateway.said("the pages are at ")
        (line,) = [line["message"] for line in self.gateway.entries() if "the pages are at " in line["message"]]
        return str(line.rpartition(" ")[2])

    def _resource(self, name: str) -> dict[str, Any]:
        options = {"count": COUNTS[name], "device_id_prefix": name.rpartition("/")[2]}
        return {"name": name, "driver": "simulated", "options": {**options, "control_file": str(self._control(name))}}

    def _control(self, name: str) -> Path:
        return self._folder / f"{name.rpartition('/')[2]}.json"

    def fail(self, name: str, **fault: Any) -> None:
        """A fault of the simulated driver; without one there is none any more."""
        new = self._control(name).with_suffix(".new")
        new.write_text(json.dumps({"faults": [fault] if fault else []}))
        new.rename(self._control(name))

    async def admit(self, pod: str, **counts: int) -> None:
        wanted = {f"example.com/{name}": count for name, count in counts.items()}
        answer = await self.kubelet.admit(pod, {"main": wanted})
        assert answer["ok"], answer


@contextlib.asynccontextmanager
async def node(folder: Path) -> AsyncIterator[Node]:
    one = Node(folder)
    async with one.gateway:
        try:
            yield one
        finally:
            await one.kubelet.kill()

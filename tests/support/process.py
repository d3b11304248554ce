"""The gateway as a process, with drivers that a test writes."""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

from tests.support.waiting import until

COMMAND = Path(sys.executable).with_name("dpgateway")

AWKWARD = """
import os, sys, threading, time, warnings
from dataclasses import dataclass, field
from dpgateway import Allocation, Device, hookimpl

@dataclass(frozen=True)
class Options:
    hangs: tuple[str, ...] = field(default=(), metadata={"help": "methods that never return"})
    exits: tuple[str, ...] = field(default=(), metadata={"help": "methods that raise SystemExit"})
    noisy: bool = field(default=False, metadata={"help": "warns"})

class Awkward:
    Options = Options

    def __init__(self, options, context):
        self._options, self._context = options, context
        self._do("init")

    def _do(self, method):
        if self._options.noisy:
            warnings.warn(f"{method} was called", stacklevel=1)
            self._context.log.debug("a word")
            threading.Thread(target=lambda: 1 / 0).start()
        if method in self._options.exits:
            sys.exit(3)
        if method in self._options.hangs:
            threading.Event().wait()

    def devices(self):
        self._do("devices")
        return [Device("a"), Device("b")]

    def allocate(self, devices):
        self._do("allocate")
        return Allocation(env={"GOT": "1"})

    def prepare(self, devices):
        self._do("prepare")

    def release(self, devices):
        self._do("release")

    def close(self):
        self._do("close")

@hookimpl
def dpgateway_driver():
    return Awkward
"""


def install(folder: Path) -> None:
    """The driver ``awkward``, as an installed package would be."""
    (folder / "awkward.py").write_text(AWKWARD)
    info = folder / "awkward-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: awkward\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dpgateway]\nawkward = awkward\n")


class Process:
    """One ``dpgateway run``."""

    def __init__(self, folder: Path, device_plugins_dir: Path) -> None:
        self.folder, self.directory = folder, device_plugins_dir
        self.lines: list[str] = []
        self.level = "info"

    async def start(self, *resources: dict[str, Any]) -> None:
        config = self.folder / "config.yaml"
        config.write_text(json.dumps({"resources": list(resources)}))
        options = [f"--config={config}", f"--device-plugins-dir={self.directory}", "--node-name=node"]
        command = [str(COMMAND), "run", *options, "--log-format=json", f"--log-level={self.level}"]
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        self.process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, stdout=DEVNULL, env=environment)
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    def log(self) -> list[dict[str, Any]]:
        """Every line, each of which must be JSON."""
        return [json.loads(line) for line in self.lines]

    async def said(self, text: str, count: int = 1) -> None:
        await until(lambda: sum(text in line for line in self.lines) >= count, 15)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """The exit code, and how many seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        async with asyncio.timeout(20):
            code = await self.process.wait()
            took = time.monotonic() - began
            await self._reader
        return code, took

    def names(self) -> list[str]:
        folder = self.directory / "dpgateway"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def used(self) -> dict[str, int]:
        """Threads, descriptors, and resident KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        return {
            "threads": int(fields["Threads"]),
            "descriptors": len(list(Path(f"/proc/{self.process.pid}/fd").iterdir())),
            "memory": int(fields["VmRSS"].split()[0]),
        }

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reader

"""The compared processes, each with a device-plugins directory of its own.

Their logs go to files, so that no reader uses the CPU during a measurement.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import machine
from tests.support.gateway import COMMAND, run

ROOT = Path(__file__).resolve().parent.parent
_ENDING = 10.0
"""Seconds from SIGTERM to SIGKILL."""


class Process(AbstractContextManager["Process"]):
    """A context manager: entering starts the process, leaving ends it."""

    def __init__(
        self, name: str, folder: Path, command: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.folder = name, folder
        self.directory = folder / "device-plugins"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._command, self._environment = command, {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self.folder / f"{self.name}.log").open("wb") as log:
            self._process = subprocess.Popen(self._command, stderr=log, env=self._environment, cwd=ROOT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self._running()
        if process.poll() is not None:
            print(f"{self.name} ended by itself, with {process.returncode}; its log ends with:", file=sys.stderr)
            print(self.log()[-2000:], file=sys.stderr)
        process.terminate()
        try:
            process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} isn't running")
        return self._process

    @property
    def pid(self) -> int:
        return self._running().pid

    def resident(self) -> float:
        return machine.resident(self.pid)

    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(errors="replace")


def gateway(  # noqa: PLR0913  what benchmarks vary
    folder: Path,
    resources: int,
    options: Mapping[str, object],
    *,
    driver: str = "simulated",
    environment: Mapping[str, str] | None = None,
    web: Mapping[str, object] | None = None,
    more: Mapping[str, object] | None = None,
) -> Process:
    """``dpgateway run`` with this many resources of one driver with the same options, and a log as on a node. ``more``:
    further keys of the configuration.
    """
    entries = [
        {"name": f"bench.example/r{number}", "driver": driver, "options": options} for number in range(resources)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"resources": entries, "web": web or {}, "state_dir": str(folder / "state"), **(more or {})}
    words = run(folder, folder / "device-plugins", whole)
    return Process("gateway", folder, [*COMMAND, *words, "--log-format=json"], environment)


def bare(folder: Path, resources: int, devices: int, *more: str) -> Process:
    """``bare.py`` with this many resources of this many devices each."""
    directory = folder / "device-plugins"
    command = [sys.executable, "-m", "benchmarks.bare", str(directory), str(resources), str(devices), *more]
    return Process("bare", folder, command)

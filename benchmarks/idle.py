"""Idle: the CPU time of a process with 64 resources of 100 devices under a kubelet, while nothing happens."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from benchmarks import machine, processes
from benchmarks.budgets import Figures
from benchmarks.kubelets import SETTLED, kubelet

RESOURCES, DEVICES = 64, 100
WINDOW = 30.0
"""Seconds: the default of ``refresh``, so that each driver is asked once."""


async def measure(folder: Path, effort: float) -> Figures:
    """Percent of one core. Both processes are measured at the same time."""
    window = WINDOW * min(1.0, max(0.2, effort))
    gateway = processes.gateway(folder / "gateway", RESOURCES, {"count": DEVICES})
    bare = processes.bare(folder / "bare", RESOURCES, DEVICES)
    with gateway, bare:
        managers = [kubelet(process.directory) for process in (gateway, bare)]
        for manager in managers:
            await manager.start()
            await manager.listed(RESOURCES)
        used = await _watch((gateway, bare), window)
        for manager in managers:
            await manager.stop()
    return {f"idle.{name}.percent": 100 * seconds / window for name, seconds in used.items()}


async def _watch(idle: tuple[processes.Process, ...], window: float) -> dict[str, float]:
    """Seconds of a core, by process."""
    await asyncio.sleep(SETTLED)  # the start's own work has to end first
    before = {process.name: machine.cpu_seconds(process.pid) for process in idle}
    began = time.monotonic()
    await asyncio.sleep(window)
    share = window / (time.monotonic() - began)
    return {process.name: (machine.cpu_seconds(process.pid) - before[process.name]) * share for process in idle}

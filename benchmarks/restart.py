"""A kubelet's restart: from the moment it serves kubelet.sock to the last resource's list at the kubelet.

The same processes give the figures for memory, with 100 devices per resource: under their first kubelet, and after all
of these restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from benchmarks import processes
from benchmarks.budgets import Figures
from benchmarks.kubelets import SETTLED, Kubelet, kubelet
from benchmarks.numbers import p50, percentile

SIZES = (1, 8, 16, 32, 64)
DEVICES = 100
_MANY = (8, 64)
"""The sizes with a budget for the 99th percentile, which needs more restarts."""

Pairs = Sequence[tuple[processes.Process, Kubelet]]
"""Processes, each with its kubelet."""


async def measure(folder: Path, effort: float) -> Figures:
    """Milliseconds and MB, by the number of resources; the processes take turns."""
    figures: Figures = {}
    for size in SIZES:
        restarts = max(5, round((100 if size in _MANY else 20) * effort))
        figures |= await _measure(folder / str(size), size, restarts)
    return figures


async def _measure(folder: Path, size: int, restarts: int) -> Figures:
    gateway = processes.gateway(folder / "gateway", size, {"count": DEVICES})
    bare = processes.bare(folder / "bare", size, DEVICES)
    with gateway, bare:
        pairs = [(process, kubelet(process.directory)) for process in (gateway, bare)]
        figures: Figures = {}
        for name, resident in (await _memory(pairs, size)).items():
            figures[f"memory.{name}.mb@{size}"] = resident
        figures[f"memory.over.mb@{size}"] = figures[f"memory.gateway.mb@{size}"] - figures[f"memory.bare.mb@{size}"]

        # Memory under the first kubelet comes first: restarts leave something in the allocators.
        times: dict[str, list[float]] = {process.name: [] for process, _ in pairs}
        for _ in range(restarts):
            for process, manager in pairs:
                times[process.name].append(await _life(manager, size))
        for name, resident in (await _memory(pairs, size)).items():
            figures[f"memory.{name}_later.mb@{size}"] = resident
        for process, _ in pairs:
            figures[f"restart.{process.name}.ms@{size}"] = p50(times[process.name])
            figures[f"restart.{process.name}_p99.ms@{size}"] = percentile(times[process.name], 99)
    return figures


async def _memory(pairs: Pairs, size: int) -> dict[str, float]:
    """Resident MB of each process, SETTLED seconds after its kubelet got every list."""
    for _, manager in pairs:
        await manager.start()
        await manager.listed(size)
    await asyncio.sleep(SETTLED)
    taken = {process.name: process.resident() for process, _ in pairs}
    for _, manager in pairs:
        await manager.stop()
    return taken


async def _life(manager: Kubelet, size: int) -> float:
    """Milliseconds from serving kubelet.sock to the last list, in one kubelet's life."""
    await manager.start()
    listed = await manager.listed(size)
    took = max(listed) - await manager.served()
    await manager.stop()
    return took * 1000

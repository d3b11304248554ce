"""The start: from the start of the process to the last of 64 resources' lists at a running kubelet."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks import processes
from benchmarks.budgets import Figures
from benchmarks.kubelets import kubelet
from benchmarks.numbers import p50

RESOURCES, DEVICES = 64, 100


async def measure(folder: Path, effort: float) -> Figures:
    """Seconds; the processes take turns."""
    times: dict[str, list[float]] = {"gateway": [], "bare": []}
    for number in range(max(3, round(10 * effort))):
        place = folder / str(number)
        for process in (
            processes.gateway(place / "gateway", RESOURCES, {"count": DEVICES}),
            processes.bare(place / "bare", RESOURCES, DEVICES),
        ):
            times[process.name].append(await _start(process))
    return {
        "start.gateway.s": p50(times["gateway"]),
        "start.gateway_slowest.s": max(times["gateway"]),
        "start.bare.s": p50(times["bare"]),
    }


async def _start(process: processes.Process) -> float:
    manager = kubelet(process.directory)
    await manager.start()
    began = time.time()
    with process:
        listed = await manager.listed(RESOURCES)
    await manager.stop()
    return max(listed) - began

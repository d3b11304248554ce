"""The growth of memory over 1,000 kubelet restarts: the last ones compared with early ones."""

from __future__ import annotations

from pathlib import Path

from benchmarks import processes
from benchmarks.budgets import Figures
from benchmarks.numbers import p50
from benchmarks.stub import Stub

RESOURCES, DEVICES, RESTARTS = 4, 100, 1000


async def measure(folder: Path, effort: float) -> Figures:
    """MB. The last 200 restarts are compared with restarts 200 to 400, because allocators need time to settle."""
    restarts = max(100, round(RESTARTS * effort))
    process = processes.gateway(folder, RESOURCES, {"count": DEVICES})
    stub = Stub(process.directory)
    taken = []
    with process:
        for _ in range(restarts):
            stub.start()
            for lists in [plugin.lists() for plugin in stub.plugins(RESOURCES)]:
                next(lists)
            taken.append(process.resident())
            stub.stop()
    fifth = restarts // 5
    early, late = taken[fifth : 2 * fifth], taken[-fifth:]
    return {"growth.early.mb": p50(early), "growth.late.mb": p50(late), "growth.gateway.mb": p50(late) - p50(early)}

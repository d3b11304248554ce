"""What ``dpgateway status`` takes where `kubectl exec` runs it: in the container of a gateway with 64 resources of 100
devices, within the same limit of memory.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from benchmarks import processes
from benchmarks.budgets import Figures
from benchmarks.kubelets import kubelet
from benchmarks.numbers import p50
from tests.support.gateway import COMMAND

RESOURCES, DEVICES = 64, 100
ROUNDS = 10

_BARE = """
import os, sys
null = os.open(os.devnull, os.O_WRONLY)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
sys.exit(status != 0)
"""


async def measure(folder: Path, effort: float) -> Figures:
    """MB at the peak, and seconds of CPU time: of the table, and of the JSON."""
    process = processes.gateway(folder, RESOURCES, {"count": DEVICES})
    with process:
        manager = kubelet(process.directory)
        await manager.start()
        await manager.listed(RESOURCES)
        control = f"--control-socket={folder / 'control.sock'}"
        figures: Figures = {}
        for name, *words in (("table",), ("json", "--output=json")):
            command = [*COMMAND, "status", control, *words]
            taken = [await asyncio.to_thread(_taken, command) for _ in range(max(2, round(ROUNDS * effort)))]
            figures |= {f"asking.{name}.mb": max(mb for mb, _ in taken), f"asking.{name}.s": p50([s for _, s in taken])}
        await manager.stop()
    return figures


def _taken(command: list[str]) -> tuple[float, float]:
    """One command's peak of resident memory in MB, and its CPU time in seconds. A bare interpreter starts it, because
    the kernel counts the parent's memory before exec, too (fs/exec.c, exec_mmap).
    """
    found = subprocess.run(
        [sys.executable, "-IS", "-c", _BARE, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    kib, seconds = found.stdout.split()
    return int(kib) * 1024 / 1e6, float(seconds)

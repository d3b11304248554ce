"""DRA: memory, CPU time and requests of a process whose 64 resources of 100 devices are offered by DRA, with events."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from benchmarks import machine, processes
from benchmarks.budgets import Figures
from benchmarks.idle import WINDOW
from benchmarks.kubelets import SETTLED
from dpgateway_simulator.cluster import SimulatedCluster

RESOURCES, DEVICES = 64, 100
DRIVER = "dra.example.com"
_DUE = 60.0
"""Seconds for the slices, before the run fails."""


async def measure(folder: Path, effort: float) -> Figures:
    """MB, percent of one core, and requests; the API server and the kubelet are simulated, in this process."""
    window = WINDOW * min(1.0, max(0.2, effort))
    folder = folder / "gateway"
    (folder / "cdi").mkdir(parents=True)
    async with SimulatedCluster() as cluster:
        node = cluster.node(root=folder, name="node")
        await node.start()
        more = {
            "defaults": {"front": "dra"},
            "dra": {"driver": DRIVER},
            "cluster": {**cluster.account(folder), "events": True},
            "runtime": {"cdi_dirs": [str(folder / "cdi")]},
        }
        process = processes.gateway(folder, RESOURCES, {"count": DEVICES}, more=more)
        with process:
            began = time.monotonic()
            await cluster.run("agent", {"c": {}})  # a new gateway waits until the kubelet names a pod
            async with asyncio.timeout(_DUE):
                while _published(cluster) < RESOURCES * DEVICES:
                    await cluster.server.store.changed()
            published = time.monotonic() - began
            await asyncio.sleep(SETTLED)  # the start's own work has to end first
            asked, before, began = len(cluster.server.asked), machine.cpu_seconds(process.pid), time.monotonic()
            await asyncio.sleep(window)
            used = machine.cpu_seconds(process.pid) - before
            percent = 100 * used / (time.monotonic() - began)
            resident, idle = process.resident(), len(cluster.server.asked) - asked
    return {
        "dra.gateway.mb": resident,
        "dra.gateway.percent": percent,
        "dra.published.s": published,
        "dra.idle.requests": idle,
    }


def _published(cluster: SimulatedCluster) -> int:
    slices = cluster.server.store.list("resourceslices", "", {"spec.driver": DRIVER})
    return sum(len(one["spec"].get("devices") or ()) for one in slices)

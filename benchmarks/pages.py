"""The pages: memory and CPU time of a process with 64 resources of 100 devices that is scraped every 15 s."""

from __future__ import annotations

import asyncio
import re
import time
from http.client import HTTPConnection
from pathlib import Path

from benchmarks import machine, processes
from benchmarks.budgets import Figures
from benchmarks.kubelets import SETTLED, kubelet
from benchmarks.numbers import p50

RESOURCES, DEVICES = 64, 100
SCRAPES, EVERY = 8, 15.0
"""The number of scrapes, and the seconds between them, as in deploy/monitoring/scrape.yaml."""
LISTENING = re.compile(r"the pages are at http://(127\.0\.0\.1:\d+)/")


async def measure(folder: Path, effort: float) -> Figures:
    """MB, percent of one core, and ms. ``unasked`` is measured before the first scrape, which loads the metrics."""
    process = processes.gateway(folder, RESOURCES, {"count": DEVICES}, web={"listen": "127.0.0.1:0"})
    with process:
        manager = kubelet(process.directory)
        await manager.start()
        await manager.listed(RESOURCES)
        found = LISTENING.search(process.log())
        assert found is not None, "the gateway says where its pages are as it starts"  # noqa: S101  a benchmark's own
        await asyncio.sleep(SETTLED)  # the start's own work has to end first
        unasked = process.resident()
        await _scrape(found[1])  # loads prometheus_client
        before, began = machine.cpu_seconds(process.pid), time.monotonic()
        taken = [await _paced(found[1]) for _ in range(max(2, round(SCRAPES * effort)))]
        used = machine.cpu_seconds(process.pid) - before
        percent = 100 * used / (time.monotonic() - began)
        resident = process.resident()
        await manager.stop()
    return {
        "pages.unasked.mb": unasked,
        "pages.gateway.mb": resident,
        "pages.gateway.percent": percent,
        "pages.scrape.ms": p50(taken),
    }


async def _paced(address: str) -> float:
    """Scrapes, and waits until the next scrape is due. Returns the scrape's milliseconds."""
    began = time.monotonic()
    await _scrape(address)
    took = time.monotonic() - began
    await asyncio.sleep(EVERY - took)
    return 1000 * took


async def _scrape(address: str) -> None:
    def get() -> None:
        connection = HTTPConnection(address, timeout=10)
        connection.request("GET", "/metrics")
        with connection.getresponse() as answer:
            assert answer.status == 200  # noqa: S101  a benchmark's own
            assert answer.read().endswith(b"\n")  # noqa: S101  it is whole
        connection.close()

    await asyncio.to_thread(get)

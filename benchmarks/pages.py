"""The pages: memory and CPU time of a process with 64 resources of 100 devices that is scraped once a second."""

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
SCRAPES = 30
LISTENING = re.compile(r"the pages are at http://(127\.0\.0\.1:\d+)/")


async def measure(folder: Path, effort: float) -> Figures:
    """MB, percent of one core, and ms. ``off`` is before the first scrape, which is when the pages are made."""
    process = processes.gateway(folder, RESOURCES, {"count": DEVICES}, web={"listen": "127.0.0.1:0"})
    with process:
        manager = kubelet(process.directory)
        await manager.start()
        await manager.listed(RESOURCES)
        found = LISTENING.search(process.log())
        assert found is not None, "the gateway says where its pages are as it starts"  # noqa: S101  a benchmark's own
        await asyncio.sleep(SETTLED)  # first let the work end that the start began
        unasked = process.resident()
        connection = HTTPConnection(found[1], timeout=10)  # which stays open from scrape to scrape, as Prometheus' does
        await _scrape(connection)  # the first one makes all lines
        before, began = machine.cpu_seconds(process.pid), time.monotonic()
        taken = [await _second(connection) for _ in range(max(5, round(SCRAPES * effort)))]
        used = machine.cpu_seconds(process.pid) - before
        percent = 100 * used / (time.monotonic() - began)
        resident = process.resident()
        connection.close()
        await manager.stop()
    return {
        "pages.unasked.mb": unasked,
        "pages.gateway.mb": resident,
        "pages.gateway.percent": percent,
        "pages.scrape.ms": p50(taken),
    }


async def _second(connection: HTTPConnection) -> float:
    """A scrape, and what is left of the second. Returns the milliseconds that the scrape took."""
    began = time.monotonic()
    await _scrape(connection)
    took = time.monotonic() - began
    await asyncio.sleep(1 - took)
    return 1000 * took


async def _scrape(connection: HTTPConnection) -> None:
    def get() -> None:
        connection.request("GET", "/metrics")
        with connection.getresponse() as answer:
            assert answer.status == 200  # noqa: S101  a benchmark's own
            assert answer.read().endswith(b"\n")  # noqa: S101  it is whole

    await asyncio.to_thread(get)

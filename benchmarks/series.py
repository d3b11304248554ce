"""``python -m benchmarks.series``: prints the series and bytes of `/metrics`, a table of docs/reference/metrics.md."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from pathlib import Path

from benchmarks import processes
from benchmarks.pages import LISTENING
from dpgateway_simulator import Kubelet
from tests.support.http import ask
from tests.support.waiting import until

SIZES = ((8, 8), (8, 100), (64, 100))
"""Resources, and devices of each."""
PODS = 4
"""Pods of each resource in use."""


async def measured(folder: Path, resources: int, devices: int, metrics: str) -> list[str]:
    """Series, bytes and compressed bytes: unused, and used."""
    web = {"listen": "127.0.0.1:0", "metrics": metrics}
    process = processes.gateway(folder, resources, {"count": devices, "prepare": True}, web=web)
    names = [f"bench.example/r{number}" for number in range(resources)]
    found = []
    async with Kubelet("1.31", process.directory) as kubelet:
        with process:
            await kubelet.wait_for(lambda: all(kubelet.counts(name)[1] == devices for name in names), timeout=60)
            listening = await until(lambda: LISTENING.search(process.log()))
            port = int(listening[1].rpartition(":")[2])
            found += await scraped(port)
            for number in range(PODS):
                for name in names:
                    assert (await kubelet.admit(f"{name.rpartition('/')[2]}-{number}", {"main": {name: 1}}))["ok"]  # noqa: S101  a benchmark's own
            if metrics == "full":
                await until(lambda: held(port, PODS * resources))
            await asyncio.sleep(1)  # the age of a page that is served again
            found += await scraped(port)
    return found


async def scraped(port: int) -> list[str]:
    plain, packed = await ask(port, "/metrics"), await ask(port, "/metrics", **{"accept-encoding": "gzip"})
    assert gzip.decompress(packed.body)[:6] == plain.body[:6]  # noqa: S101
    series = sum(not line.startswith(b"#") for line in plain.body.splitlines())
    return [f"{series:,}", f"{len(plain.body):,}", f"{len(packed.body):,}"]


async def held(port: int, count: int) -> bool:
    text = (await ask(port, "/metrics")).body
    return text.count(b"\ndpgateway_holdings{") == count


async def main() -> None:
    head = [
        "page",
        "resources of devices",
        *(f"{what}{used}" for used in ("", ", used") for what in ("series", "bytes", "gzip")),
    ]
    table = []
    for metrics in ("brief", "full"):
        for resources, devices in SIZES:
            with tempfile.TemporaryDirectory(prefix="dpgateway-bench-") as folder:
                found = await measured(Path(folder), resources, devices, metrics)
            table.append([metrics, f"{resources} of {devices}", *found])
    for row in (head, ["---"] * len(head), *table):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    asyncio.run(main())

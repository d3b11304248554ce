"""Hands the gateway over again and again under the device managers of nine kubelet releases, while pods come and go.

``python -m tools.handovers`` prints, for each release, how long the kubelet had fewer devices than there are, how many
pods it refused, and how long the slowest pod waited for its device: with handovers, and without any. With
releases as arguments, only those. ``--end-first`` ends the old gateway before the new one starts, as ``systemctl
restart`` does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.real_kubelet.device_manager import DeviceManager
from tests.real_kubelet.programs import RELEASES
from tests.support.gateway import Gateway

DEVICES = 64
"""Of each resource."""
PER_SECOND = 20
"""Pods per second, each with one device, of the resources in turn."""
LIFE = 0.3
"""A pod's life in seconds."""
QUIET = 60.0
"""Seconds of the run without handovers, at most."""
BETWEEN = 0.5
"""Seconds between the end of one handover and the start of the next."""
NUMBERS = itertools.count()


@dataclass
class Seen:
    """Observations of one kubelet."""

    gaps: list[float] = field(default_factory=list)
    """Seconds with too few devices, per handover."""
    waits: list[float] = field(default_factory=list)
    """Seconds until the kubelet's answer, per pod."""
    refused: Counter[str] = field(default_factory=Counter)
    """Numbers of refused pods, by the kubelet's reason."""


class Churn:
    """Admits and removes pods, and polls the kubelet's count of devices meanwhile."""

    def __init__(self, kubelet: DeviceManager, resources: Sequence[str], seen: Seen) -> None:
        self._kubelet, self._resources, self._seen = kubelet, resources, seen
        self.over = False
        """Set when no more pods should come."""
        self._missing: list[tuple[float, float]] = []
        """The polls with too few devices, each as its start and end."""

    async def pods(self) -> None:
        async with asyncio.TaskGroup() as group:
            begin = time.monotonic()
            for count in itertools.count():
                await asyncio.sleep(begin + count / PER_SECOND - time.monotonic())
                if self.over:
                    return
                resource = self._resources[count % len(self._resources)]
                group.create_task(self._pod(f"pod-{next(NUMBERS)}", resource))

    async def _pod(self, name: str, resource: str) -> None:
        asked = time.monotonic()
        answer = await self._kubelet.admit(name, {"c": {resource: 1}})
        self._seen.waits.append(time.monotonic() - asked)
        if not answer["ok"]:
            self._seen.refused[str(answer.get("error") or answer)] += 1
        await asyncio.sleep(LIFE)
        await self._kubelet.remove(name)

    async def look(self) -> None:
        while True:
            asked = time.monotonic()
            counted = (await self._kubelet.capacity())["allocatable"]
            if any(counted.get(resource) != DEVICES for resource in self._resources):
                self._missing.append((asked, time.monotonic()))
            await asyncio.sleep(0.001)

    def gap(self, since: float) -> float:
        """Seconds from the first to the last poll since then with too few devices."""
        missing = [look for look in self._missing if look[0] >= since]
        return missing[-1][1] - missing[0][0] if missing else 0.0


def gateway(folder: Path, directory: Path, resources: Sequence[str]) -> Gateway:
    one = Gateway(folder, directory)
    options = {"count": DEVICES, "prepare": True}
    one.resources = [{"name": name, "driver": "simulated", "options": options} for name in resources]
    return one


async def start(one: Gateway) -> None:
    """Starts a gateway; returns once the kubelet accepted all of its resources."""
    one.log.clear()
    await one.start()
    await one.said('"registered"', len(one.resources), 60)


async def measure(release: str, handovers: int, resources: Sequence[str], *, end_first: bool) -> tuple[Seen, Seen]:
    """Observations with handovers, and then without."""
    folder = Path(tempfile.mkdtemp(prefix="handovers-"))
    kubelet = DeviceManager(release, folder / "device-plugins", timeout=600)  # the machine may be busy
    old, new = (gateway(folder, kubelet.directory, resources) for _ in range(2))
    try:
        await kubelet.start()
        await start(old)
        await kubelet.wait_for(lambda seen: all(seen["allocatable"].get(one) == DEVICES for one in resources))
        took, seen = time.monotonic(), Seen()
        async with churning(kubelet, resources, seen) as churn:
            for _ in range(handovers):
                since = time.monotonic()
                if end_first:
                    await old.end()
                await start(new)
                await old.end()
                await asyncio.sleep(BETWEEN)
                seen.gaps.append(churn.gap(since))
                old, new = new, old

        # The same churn for as long, without handovers: the base line.
        quiet = Seen()
        async with churning(kubelet, resources, quiet):
            await asyncio.sleep(min(time.monotonic() - took, QUIET))
        await old.end()
        return seen, quiet
    finally:
        for one in (old, new):
            await one.close()
        await kubelet.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def churning(kubelet: DeviceManager, resources: Sequence[str], seen: Seen) -> AsyncGenerator[Churn, None]:
    churn = Churn(kubelet, resources, seen)
    looking, pods = asyncio.create_task(churn.look()), asyncio.create_task(churn.pods())
    try:
        yield churn
    finally:
        churn.over = True
        await pods
        looking.cancel()


def line(release: str, seen: Seen, quiet: Seen) -> str:
    gaps = sorted(1000 * gap for gap in seen.gaps)
    with_gap = sum(gap > 0 for gap in gaps)
    p99 = gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))]
    times = f"{with_gap} of {len(gaps)} | {statistics.median(gaps):.0f} | {p99:.0f} | {gaps[-1]:.0f}"
    refused = " | ".join(f"{one.refused.total()} of {len(one.waits)}" for one in (seen, quiet))
    waits = " | ".join(f"{1000 * max(one.waits):.0f}" for one in (seen, quiet))
    return f"| {release} | {times} | {refused} | {waits} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES)
    parser.add_argument("--handovers", type=int, default=20, help="for each release")
    parser.add_argument("--resources", type=int, default=4)
    parser.add_argument("--end-first", action="store_true", help="as systemctl restart does")
    words = parser.parse_args()
    resources = [f"example.com/thing{number}" for number in range(words.resources)]
    print("| kubelet | with a gap | p50, ms | p99 | longest | pods refused | without | longest wait, ms | without |")
    print("|---|---|---|---|---|---|---|---|---|")
    for release in words.releases:
        seen, quiet = asyncio.run(measure(release, words.handovers, resources, end_first=words.end_first))
        print(line(release, seen, quiet), flush=True)
        for reason, count in (seen.refused + quiet.refused).most_common(5):
            print(f"    {count}: {reason}", flush=True)


if __name__ == "__main__":
    main()

"""A gateway outlives many kubelets, and is the same after them as before."""

import statistics
import time
from collections.abc import Callable

import pytest

from tests.real_kubelet.programs import RELEASES
from tests.scenarios.engines import REAL
from tests.scenarios.gateway import COUNTED, SAME, Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet, devices
from tests.support.waiting import until

RESTARTS = {"simulated": 10, "real": 100, "newest": 1000}
WARM = 5
"""Restarts after which what is made once has been made."""
MOST_GROWTH = 4096
"""KiB of resident memory, which the allocator may keep. An object of 100 bytes leaked a hundred times isn't seen, but a
list of devices, a channel or a task at each restart is."""
MOST_POOL = 4
"""Threads that gRPC's own pool may gain: one each time that it finds all others busy, at most one a second. They end
once they have been idle for a while.
"""
SETTLING = 60.0
"""Seconds in which what a kubelet's end left behind must be gone."""

pytestmark = pytest.mark.timeout(3600 if REAL else 240)  # a thousand restarts of a real kubelet


@pytest.fixture
def gateway(gateway: Gateway) -> Gateway:
    """Tells what it holds."""
    gateway.command = COUNTED
    return gateway


async def test_many_kubelets(kubelet: Kubelet, served: Gateway, record: Callable[..., None]) -> None:
    count = RESTARTS["simulated" if not REAL else "newest" if kubelet.release == RELEASES[-1] else "real"]
    held = devices(await kubelet.admit("p1", {"c": {RESOURCE: 1}}))
    before = await served.state()
    times = []
    for number in range(count):
        began = time.monotonic()
        await kubelet.restart(graceful=number % 2 == 0)
        started = time.monotonic()
        await kubelet.wait_for_devices(2)
        times.append((time.monotonic() - began, time.monotonic() - started))
        if number < WARM:
            now = await served.state()
            before = {what: max(before[what], now[what]) for what in before}  # it may be between two states
    after: dict[str, int] = {}

    async def as_before() -> bool:
        after.update(await served.state())
        little = after["KiB"] - before["KiB"] < MOST_GROWTH and after["pool"] - before["pool"] <= MOST_POOL
        return little and all(after[what] <= before[what] for what in SAME)

    await until(as_before, SETTLING, pause=0.1, found=lambda: (before, after, served.log[-1]))
    assert devices(await kubelet.admit("p2", {"c": {RESOURCE: 1}})) == {"node-0", "node-1"} - held
    if REAL:
        listed = sorted(one[1] * 1000 for one in times)
        record(
            "restarts",
            kubelet.release,
            restarts=count,
            before=before,
            after=after,
            p50=statistics.median(listed),
            p99=listed[int(len(listed) * 0.99) - 1],
        )


async def test_64_resources_return(kubelet: Kubelet, gateway: Gateway, record: Callable[..., None]) -> None:
    """Every resource is allocatable again after a restart; measured from the moment that kubelet.sock is served."""
    names = [f"example.com/thing-{n}" for n in range(64)]
    options = {"count": 4}
    gateway.resources = [{"name": name, "driver": "simulated", "options": options} for name in names]
    await kubelet.start()
    await gateway.start()
    times = []
    for _ in range(10 if REAL else 3):
        began = time.monotonic()
        await kubelet.engine.wait_for(lambda seen: all(seen["allocatable"].get(n) == 4 for n in names), 60)
        times.append((time.monotonic() - began) * 1000)
        await kubelet.restart()
    if REAL:
        record(f"{len(names)} resources", kubelet.release, p50=statistics.median(times[1:]), worst=max(times[1:]))

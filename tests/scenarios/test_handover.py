"""A new gateway starts beside the one that serves, and takes over; the kubelet never counts fewer devices."""

import asyncio
import contextlib
from collections.abc import Iterator

from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import Counts, Kubelet
from tests.support.waiting import until

ONE = {"c": {"example.com/thing": 1}}


@contextlib.contextmanager
def watched(kubelet: Kubelet) -> Iterator[list[Counts]]:
    """What the kubelet counts meanwhile."""
    seen: list[Counts] = []

    async def look() -> None:
        while True:
            seen.append(await kubelet.counts())
            await asyncio.sleep(0.001)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()


async def taken_over(newer: Gateway, older: Gateway, times: int = 1) -> None:
    await newer.start()
    await newer.said("took over from another gateway", times)
    await older.said("handed over to another gateway")


async def test_the_kubelet_never_counts_fewer_devices(kubelet: Kubelet, served: Gateway, newer: Gateway) -> None:
    held = await kubelet.admit("p0", ONE)
    assert held["ok"]
    with watched(kubelet) as seen:
        await taken_over(newer, served)
        assert await served.end() == 0
        served.suffer({"indexes": [0], "unhealthy": "burnt"})  # the newer one's list counts
        await kubelet.wait_for_devices(1, 1)
    assert set(seen) <= {(2, 2), (2, 1), (1, 1)}
    served.suffer()
    await kubelet.wait_for_devices(2)
    assert (await kubelet.admit("p1", ONE))["ok"]
    assert await newer.end() == 0


async def test_a_gateway_that_hands_nothing_over_is_waited_for(
    kubelet: Kubelet, served: Gateway, newer: Gateway
) -> None:
    """As those of earlier releases."""
    asked = await until(lambda: next(kubelet.directory.glob("dpgateway/*.next"), None))
    asked.unlink()
    await newer.start()
    await newer.said("another gateway serves")
    assert await served.end() == 0
    await newer.said("the kubelet listens")
    await kubelet.wait_for_devices(2)
    assert (await kubelet.admit("p1", ONE))["ok"]
    assert await newer.end() == 0

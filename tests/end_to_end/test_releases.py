"""A driver is told that its devices are free, although no other pod comes."""

import pytest

from dpgateway_simulator import Kubelet
from tests.support.gateway import Gateway

R = "example.com/thing"
THING = {"name": R, "driver": "simulated", "options": {"count": 1, "release": True}}


@pytest.fixture(params=["1.10", "1.37"])
async def kubelet(request, short_path):
    """Before 1.13 only the pods' directories tell."""
    one = Kubelet(request.param, short_path / "device-plugins")
    (short_path / "pods" / "another").mkdir(parents=True)  # each node has pods of its own
    await one.start()
    yield one
    await one.kill()


async def test_a_device_is_released_when_the_last_of_its_shares_is_free(short_path, kubelet):
    async with Gateway(short_path, kubelet.directory) as process:
        process.imported = True
        await process.start(THING | {"shares": 2})
        await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 2)
        for pod in "ab":
            assert (await kubelet.admit(pod, {"c": {R: 1}}))["ok"]
        kubelet.remove("a")
        kubelet.remove("b")
        await process.said("released node-0", seconds=90)  # also if they ended before their directories were seen
        assert await process.end() == 0
    assert sum("released node-0" in line for line in process.log) == 1

"""Devices without a NUMA node stay without one, whatever the kubelet noted."""

import pytest

from dpgateway_simulator import Kubelet
from tests.support.waiting import until

R = "example.com/thing"
THING = {"name": R, "driver": "simulated", "options": {"count": 1}}


@pytest.mark.parametrize("version", ["1.22", "1.23"])
async def test_a_lost_device_refuses_no_pod(process, short_path, version):
    """Up to 1.22 a kubelet notes a device without a NUMA node as one of node 0."""
    async with Kubelet(version, short_path / "device-plugins", policy="restricted", numa=2) as kubelet:
        await process.start(THING | {"options": {"count": 1, "device_id_prefix": "lost"}})
        await until(lambda: kubelet.counts(R) == (1, 1))
        assert (await kubelet.admit("a", {"c": {R: 1}}))["ok"]
        assert await process.end() == 0
        await process.start(THING)
        await until(lambda: kubelet.counts(R) == (2, 1))
        assert (await kubelet.admit("b", {"c": {R: 1}}))["ok"]
        assert await process.end() == 0

"""A node of one kubelet, simulated, and one gateway, the real process."""

import pytest

from dpgateway_simulator import Kubelet
from dpgateway_simulator.apiserver import SimulatedApiServer
from tests.end_to_end.awkward import install
from tests.support.gateway import Gateway


@pytest.fixture
async def kubelet(short_path, request):
    """It runs; release 1.31, unless a test says another one."""
    async with Kubelet(getattr(request, "param", "1.31"), short_path / "device-plugins") as kubelet:
        yield kubelet


@pytest.fixture
async def api():
    """An API server, which knows the node."""
    simulated = SimulatedApiServer()
    await simulated.up()
    simulated.store.create("nodes", "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}})
    yield simulated
    await simulated.down()


@pytest.fixture
async def process(short_path):
    """Not yet started; the driver ``awkward`` is installed for it."""
    (short_path / "device-plugins").mkdir(exist_ok=True)
    install(short_path)
    async with Gateway(short_path, short_path / "device-plugins") as process:
        process.environment["PYTHONPATH"] = str(short_path)
        yield process

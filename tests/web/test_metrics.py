"""The gateway's numbers, after what happened on a node with simulated kubelets."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dpgateway import Allocation, Device, Health
from dpgateway.config import Configuration, changes
from dpgateway.config import Kubelet as KubeletConfig
from dpgateway.gateway import Gateway
from dpgateway.web.metrics import Metrics
from dpgateway_simulator import Kubelet
from tests.support.resources import configured, scripted
from tests.support.waiting import until

R, S = "example.com/thing", "example.com/other"


class Node:
    """A gateway, and what it shows."""

    def __init__(self, directory, *resources):
        self.directory, self.page = directory, Metrics()
        self.resources = resources

    @asynccontextmanager
    async def running(self):
        kubelet = KubeletConfig(device_plugins_dir=self.directory)
        configuration = Configuration(self.resources, kubelet, self.directory.parent / "state")
        async with asyncio.TaskGroup() as group:
            self.gateway = Gateway(configuration, "node-a", group)
            self.gateway.start()
            try:
                yield self
            finally:
                await self.gateway.close()

    async def reload(self, *resources):
        await self.gateway.apply(changes(self.gateway.resources, resources))

    def text(self):
        return b"".join(self.page.pieces(self.gateway.figures())).decode()

    def samples(self):
        """Of each series: its name, its labels, its number."""
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
        }

    def __call__(self, name, **labels):
        """The sum of all series of that name with these labels; None if there is none."""
        found = [v for (n, *have), v in self.samples().items() if n == name and set(labels.items()) <= set(have)]
        return sum(found) if found else None


@pytest.fixture
async def kubelet(short_path):
    directory = short_path / "device-plugins"  # where a simulated kubelet serves PodResources beside it
    directory.mkdir()
    async with Kubelet("1.31", directory) as kubelet:
        yield kubelet


class Hardware:
    """What a driver of two devices finds, and what comes of its calls."""

    def __init__(self):
        self.found = [Device("a"), Device("b")]
        self.error: Exception | None = None

    def driver(self, **methods):
        return scripted(devices=lambda: self.found, allocate=self._allocate, **methods)

    def _allocate(self, devices):
        if self.error is not None:
            raise self.error
        return Allocation()


@pytest.fixture
def hardware():
    return Hardware()


async def test_devices_and_who_holds_them(kubelet, hardware):
    hardware.found = [Device("a"), Device("b"), Device("c", Health.unhealthy("broken"))]
    async with Node(kubelet.directory, configured(name=R, driver_class=hardware.driver())).running() as node:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (3, 2))
        assert node("dpgateway_devices", resource=R, health="healthy") == 2
        assert node("dpgateway_devices", resource=R, health="unhealthy") == 1
        assert (node("dpgateway_devices_free"), node("dpgateway_devices_held")) == (2, 0)
        assert node("dpgateway_holdings") is None
        await kubelet.admit("encoder", {"main": {R: 1}})
        await until(lambda: node("dpgateway_holdings", namespace="default", pod="encoder", container="main") == 1)
        assert (node("dpgateway_devices_free"), node("dpgateway_devices_held")) == (1, 1)
        kubelet.remove("encoder")
        await until(lambda: node("dpgateway_holdings") is None)
        assert node("dpgateway_devices_free") == 2

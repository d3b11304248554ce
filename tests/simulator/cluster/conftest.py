"""A cluster with one node, and a driver's instances on it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dpgateway_simulator import Kubelet
from dpgateway_simulator.cluster import SimulatedCluster
from tests.simulator.drivers import DRIVER, DraRig, X, device
from tests.simulator.rig import PluginRig

MakeDriver = Callable[..., Awaitable[DraRig]]


class Site:
    """A cluster, its node, and the driver's instances."""

    def __init__(self, cluster: SimulatedCluster, root: Path, stack: AsyncExitStack) -> None:
        self.cluster, self.root, self._stack = cluster, root, stack
        self.kubelet = cluster.node("1.37", root=root)

    def plugin(self, resource: str, **health: str) -> PluginRig:
        """A device plugin, which is stopped after the test."""
        made = PluginRig(self.kubelet, resource=resource, **health)
        self._stack.push_async_callback(made.stop)
        return made

    def driver(self, tag: str = "a", **how: Any) -> DraRig:
        made = DraRig(self.cluster, self.root, tag, **how)
        self._stack.push_async_callback(made.stop)
        return made

    async def start(self, version: str = "1.37", *devices: str, **how: Any) -> tuple[Kubelet, DraRig]:
        """A kubelet and a driver that it knows, with slices and a class for X."""
        self.kubelet = self.cluster.node(version, root=self.root, **how)
        await self.kubelet.start()
        driver = await self.driver().start(self.kubelet)
        await self.kubelet.wait_for_event("slices wiped")
        driver.publish(*(device(name) for name in devices or ("d0", "d1")))
        self.cluster.device_class("x", DRIVER, resource=X, attributes={"resource": X})
        return self.kubelet, driver


@pytest.fixture
async def site(short_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(SimulatedCluster())
        yield Site(cluster, short_path, stack)

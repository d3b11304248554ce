"""The holdings of all resources of the node: keeps the values, and runs their sources."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from dpgateway.deviceplugin.holdings.asking import Asking
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.reading import Reader
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.threads import Threads
from dpgateway.node.directory import Places
from dpgateway.node.node import Node, boot


class NodeHoldings:
    """The holdings of the node. Used from the event loop."""

    def __init__(self, node: Node, places: Places, resources: Iterable[str], threads: Threads) -> None:
        self.node = node
        self.by_resource: dict[str, ResourceHoldings] = {}
        self.asking = Asking(self.by_resource, places, threads)
        self.reader = Reader(places.device_plugins, self.by_resource, threads, self.asking.hint)
        self._boot = boot()
        for resource in resources:
            self.add(resource)
        node.written.subscribe(self.reader.ask_soon)
        node.appeared.subscribe(self._new_kubelet)

    async def run(self) -> None:
        """Reads and asks until it is cancelled."""
        self.reader.ask()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reader.run(), name="read the checkpoint")
            group.create_task(self.asking.run(), name="ask which pods have what")

    @property
    def written(self) -> int:
        """A counter of possible writes of the kubelet's checkpoint."""
        return self.node.written.version

    def add(self, resource: str) -> None:
        """Starts to follow a resource; harmless for one that is followed already."""
        if resource not in self.by_resource:
            # The present kubelet may have appeared before the resource was configured.
            holdings, kubelet = Holdings(boot=self._boot), self.node.appeared.value
            holdings = holdings if kubelet is None else holdings.new_kubelet(*kubelet)
            self.by_resource[resource] = ResourceHoldings(
                holdings, partial(self.reader.ask, resource), self.reader.read, self.asking.running
            )
            self.reader.ask()

    def drop(self, resource: str) -> None:
        del self.by_resource[resource]

    def _new_kubelet(self) -> None:
        """Marks the holdings at once, before a read or an answer can stem from the new kubelet."""
        if (kubelet := self.node.appeared.value) is not None:
            for holdings in self.by_resource.values():
                holdings.set(holdings.value.new_kubelet(*kubelet))
            self.asking.new_kubelet()

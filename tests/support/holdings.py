"""What containers hold, as a test tells it, or as a real node does."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from dpgateway.deviceplugin.holdings.node_holdings import NodeHoldings
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.threads import Threads
from dpgateway.node.directory import Places
from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node, boot


class Told:
    """The holdings of several resources, without a node: a test publishes them."""

    def __init__(self, names: Iterable[str], reread: Callable[[str], None] = lambda _: None) -> None:
        self.by_resource: dict[str, ResourceHoldings] = {}
        self.written = 0
        self._reread = reread
        for name in names:
            self.add(name)

    def add(self, resource: str) -> None:
        told = ResourceHoldings(Holdings(boot=boot()), partial(self._reread, resource))
        self.by_resource.setdefault(resource, told)

    def drop(self, resource: str) -> None:
        del self.by_resource[resource]


def node_holdings(
    directory: Path,
    names: Iterable[str],
    threads: Threads | None = None,
    changed: Callable[[Change], None] = lambda _: None,
) -> NodeHoldings:
    """Of a node whose kubelet has its files there."""

    async def read() -> None:
        await holdings.reader.read()

    node = Node(directory, changed, lambda: False, read)
    holdings = NodeHoldings(node, Places.of(directory), names, threads or Threads())
    return holdings


async def run_both(holdings: NodeHoldings) -> None:
    """The node and its holdings, until it is cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(holdings.node.run())
        group.create_task(holdings.run())

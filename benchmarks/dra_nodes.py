"""A program: the DRA front of many nodes, as far as the API server sees it. ``benchmarks.dra_scale`` starts it.

dra_nodes.py SERVER CA TOKEN FIRST COUNT

Each node has a client with connections of its own, a watch of its slices, and a publisher, as ``dra/front.py`` makes
them; there is no kubelet. Commands come line by line: ``flap SECONDS NODES`` has one device of each of that many nodes
change its health once in SECONDS, ``still`` ends that, ``state`` has the number of nodes printed whose slices are right
and seen.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from pathlib import Path

import uvloop

from dpgateway import Device
from dpgateway.cluster.account import Account
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.dra.publishing import Publisher, Us
from dpgateway.dra.slices.layout import Content, contents
from dpgateway.dra.slices.names import pool_name
from dpgateway.dra.slices.offered import Offered, pool
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable

DRIVER = "dra.example.com"
RESOURCES = {"example.com/serial": 1, "example.com/board": 4}
"""The shares of each resource's devices: those of the second need a dry run."""
DEVICES = 8
"""Of each resource."""


class SimulatedFront:
    """The part of one node's front that speaks with the API server."""

    def __init__(self, account: Account, node: str) -> None:
        self.node, self._us = node, Us(DRIVER, node)
        server, complaint = ApiServer(account), Complaint(bind(__name__), level=logging.DEBUG)
        self._seen = WatchedObjects(server, ObjectKind.SLICE, self._us.fields, complaint)
        self.publisher = Publisher(server, self._us, self._seen, Observable(True), complaint)
        self.publisher.wanted.set({pool_name(node, name): self._contents(name) for name in RESOURCES})

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._seen.run())
            group.create_task(self.publisher.run())

    @property
    def right(self) -> bool:
        return self.publisher.state.value.right and not self._seen.failure.value

    async def flap(self, seconds: float) -> None:
        """Never returns. The first device changes its health."""
        name, unhealthy = next(iter(RESOURCES)), False
        await asyncio.sleep(random.uniform(0, seconds))  # noqa: S311  nodes have nothing in common
        while True:
            await asyncio.sleep(seconds)
            unhealthy = not unhealthy
            changed = {pool_name(self.node, name): self._contents(name, "it flaps" if unhealthy else "")}
            self.publisher.wanted.set({**(self.publisher.wanted.value or {}), **changed})

    def _contents(self, name: str, unhealthy: str = "") -> tuple[Content, ...]:
        offered = []
        for number in range(DEVICES):
            serial = f"{self.node}-{number:04}"
            said = {"vendor": "Example", "serial": serial, "model": "a board"}
            one = Device(f"{name}-{number}", attributes=said, numa_nodes=(number % 2,))
            offered.append(
                Offered(one, name, one.id, frozenset({one.id}), "" if number else unhealthy, RESOURCES[name])
            )
        return contents(pool(offered, DRIVER, {}))


async def main(server: str, ca: str, token: str, first: str, count: str) -> None:
    account = Account(server, Path(ca), Path(token))
    fronts = [SimulatedFront(account, f"n{number}") for number in range(int(first), int(first) + int(count))]
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    flapping: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one.run()) for one in fronts]
        while words := (await commands.readline()).decode().split():
            match words:
                case ["flap", seconds, nodes]:
                    flapping = [group.create_task(one.flap(float(seconds))) for one in fronts[: int(nodes)]]
                case ["still"]:
                    for task in flapping:
                        task.cancel()
                case ["state"]:
                    print(json.dumps(sum(one.right for one in fronts)), flush=True)
        for task in (*running, *flapping):
            task.cancel()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))

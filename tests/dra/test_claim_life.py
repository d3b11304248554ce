"""Gateways killed at each step of a claim's life, alone and in random histories."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from pathlib import Path

import pytest

from dpgateway.cluster.server import ApiServer
from dpgateway.errors import GatewayError
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.dra.claim_life import DEVICES, LivingNode
from tests.dra.claim_node import ClaimNode
from tests.dra.test_reconciling import AT_ONCE
from tests.support.files import texts
from tests.support.waiting import until


class Nodes:
    """A new node for each history."""

    def __init__(self, server: ApiServer, simulated: Simulated, folder: Path) -> None:
        self._server, self._simulated, self._folder, self._number = server, simulated, folder, 0

    def __call__(self) -> LivingNode:
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        self._simulated.store.wipe("resourceclaims", {})
        return LivingNode(ClaimNode(self._server, self._simulated, folder), AT_ONCE)


@pytest.fixture
def nodes(server: ApiServer, simulated: Simulated, tmp_path: Path) -> Nodes:
    return Nodes(server, simulated, tmp_path)


async def clean(node: LivingNode) -> None:
    """All that the claims had is free, and another claim gets it."""
    await until(lambda: not node.records)
    await until(lambda: not node.owner and not node.resource.usage.value.taken)
    assert await node.prepare(node.schedule(*DEVICES)) == ""


async def test_the_kubelet_asks_again_after_each_kill(nodes: Nodes) -> None:
    """The gateway dies before the n-th step, whichever call that is in; another one goes on."""
    for step in count(1):
        node = nodes()
        await node.start(step)
        first = node.life
        name = node.schedule("a")
        if (error := await node.prepare(name)) and node.life.over:
            await node.start()
            error = await node.prepare(name)
        assert error == ""
        node.stop(name)
        if (error := await node.unprepare(name)) and node.life.over:
            await node.start()
            error = await node.unprepare(name)
        assert error == ""
        await node.over()
        if node.life.over:  # since it has answered: the end goes on by itself
            await node.start()
        if not first.over:
            break
        await clean(node)
    assert step > 15


@pytest.mark.parametrize("prepared", [False, True])
async def test_nobody_asks_again_after_each_kill(nodes: Nodes, prepared: bool) -> None:
    """The pod went while no gateway was there, and the kubelet forgot its claim."""
    for step in count(1):
        node = nodes()
        await node.start(None if prepared else step)
        name = node.schedule("a", "b")
        await node.prepare(name)
        if prepared:
            await node.start(step)
            node.stop(name)
            await node.unprepare(name)
            await node.over()
        killed = node.life.over
        if name in node.claims:
            node.forget(name)
        await node.start()
        await node.reconciling.look()
        await node.reconciling.look()
        await clean(node)
        if not killed:
            break
    assert step > 8


class Walk:
    """One random history. A method for each kind of step; it returns what became of it."""

    def __init__(self, node: LivingNode, seed: int) -> None:
        self.node, self.random, self.told = node, random.Random(seed), list[str]()  # noqa: S311  repeatable

    async def begin(self) -> None:
        """Half of the gateways are killed, many in their first calls. Records may be damaged or lost before."""
        node = self.node
        if node.life.over and self.random.random() < 0.1:
            self.told.append("wipe")
            node.wipe()
        elif node.life.over and self.random.random() < 0.1 and (files := node.files):
            self.told.append("damage")
            self.random.choice(files).write_text("{")
        await node.start(self.random.randint(1, 60) if self.random.random() < 0.5 else None)

    async def step(self) -> None:
        node, choice = self.node, self.random.choice
        if node.life.over:
            await self.begin()
        # The names of the claims for which each kind of step makes sense.
        stopped = [name for name in node.claims if name not in node.running]
        steps = {
            self.schedule: node.free,
            self.prepare: [name for name in stopped if name not in node.forced],
            self.delete: [*node.running],
            self.force: [name for name in node.running if name not in node.forced],
            self.end_again: stopped,
            self.forget: stopped,
            self.look: ["twice"],
            self.driver: ["hangs" if not node.slow else "goes on"],
            self.reboot: ["all"] if self.random.random() < 0.1 else [],
        }
        does = choice([one for one, names in steps.items() if names])
        name = choice(steps[does])
        self.told.append(f"{does.__name__} {name}: {await does(name)}")

    async def schedule(self, device: str) -> str:
        return self.node.schedule(device)

    async def prepare(self, name: str) -> str:
        return await self.node.prepare(name)

    async def delete(self, name: str) -> str:
        self.node.stop(name)
        return await self.node.unprepare(name)

    async def end_again(self, name: str) -> str:
        return await self.node.unprepare(name)

    async def force(self, name: str) -> str:
        self.node.force(name)
        return ""

    async def forget(self, name: str) -> str:
        self.node.forget(name)
        return ""

    async def look(self, _: str) -> str:
        try:
            return f"{await self.node.reconciling.look()} {await self.node.reconciling.look()}"
        except (GatewayError, OSError) as error:
            return str(error)

    async def driver(self, how: str) -> str:
        self.node.slow.clear() if how == "goes on" else self.node.slow.append(how)
        self.node.go_on()
        return ""

    async def reboot(self, _: str) -> str:
        self.node.reboot()
        await self.begin()
        return ""

    async def end(self) -> None:
        """Everything ends, and a person removes what is damaged."""
        node = self.node
        node.slow.clear()
        await node.start()
        for name in [*node.claims]:
            node.stop(name)
            assert await node.unprepare(name) == ""
        for path, text in texts(node.node.files.folder).items():
            if text == "{":
                path.unlink()
        for _ in range(3):
            await node.reconciling.look()
        await clean(node)


@pytest.mark.parametrize("seed", range(10))
async def test_random_histories(nodes: Nodes, seed: int) -> None:
    walk = Walk(nodes(), seed)
    await walk.begin()
    try:
        async with asyncio.timeout(50):
            for _ in range(100):
                await walk.step()
            await walk.end()
    except BaseException as error:
        error.add_note("\n".join(walk.told))
        raise

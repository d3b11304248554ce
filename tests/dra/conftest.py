"""A simulated API server with one node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dpgateway.cluster.account import Account
from dpgateway.cluster.server import ApiServer
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.dra.claim_node import ClaimNode

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


@pytest.fixture
async def simulated(request: pytest.FixtureRequest) -> AsyncIterator[Simulated]:
    """A test's parameter is its store."""
    one = Simulated(getattr(request, "param", None))
    await one.up()
    one.store.create("nodes", "", NODE)
    yield one
    await one.down()


@pytest.fixture
async def server(simulated: Simulated, tmp_path: Path) -> AsyncIterator[ApiServer]:
    token = tmp_path / "token"
    token.write_text("first")
    one = ApiServer(Account(simulated.url, None, token))
    yield one
    await one.close()


class LateServer(ApiServer):
    """Hears of what is created, or would be, when the test says so."""

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self.hear, self.answered = asyncio.Event(), 0

    async def create(self, *what: Any, **how: Any) -> Any:
        made = await super().create(*what, **how)
        self.answered += 1
        await self.hear.wait()
        return made


@pytest.fixture
async def late_server(simulated: Simulated, tmp_path: Path) -> AsyncIterator[LateServer]:
    (tmp_path / "token").write_text("first")
    one = LateServer(Account(simulated.url, None, tmp_path / "token"))
    yield one
    await one.close()


@pytest.fixture
def node(server: ApiServer, simulated: Simulated, tmp_path: Path) -> ClaimNode:
    return ClaimNode(server, simulated, tmp_path)

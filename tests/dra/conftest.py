"""A simulated API server with one node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

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


@pytest.fixture
def node(server: ApiServer, simulated: Simulated, tmp_path: Path) -> ClaimNode:
    return ClaimNode(server, simulated, tmp_path)

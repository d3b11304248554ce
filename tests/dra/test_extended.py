"""The extended resource that a claim's pod asked for, in the claim's record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpgateway import Device
from dpgateway.cluster.server import ApiServer
from dpgateway.dra.claims.reading import Asked
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.dra.claim_node import ClaimedResource, ClaimNode, lanes
from tests.support.resources import NAME


@pytest.fixture
def node(server: ApiServer, simulated: Simulated, tmp_path: Path) -> ClaimNode:
    one = ClaimNode(server, simulated, tmp_path)
    one.make_class("things", NAME)
    one.make_class("bare")
    return one


def allocate(node: ClaimNode, device: str, class_: str, *, extended: str = "true") -> Asked:
    asked = node.allocate(device, device)
    node.extend(device, class_, extended)
    return asked


def extended(node: ClaimNode) -> dict[str, Any]:
    return {name: one["given"][0]["extended"] for name, one in node.records.items()}


async def test_a_record_has_the_resource_of_the_class(node: ClaimNode, simulated: Simulated) -> None:
    claims = await node.gateway(ClaimedResource(lanes(), *map(Device, "abcde")))
    wanted = [
        allocate(node, "a", "things"),
        allocate(node, "b", "things"),
        allocate(node, "c", "things", extended="false"),
        allocate(node, "d", "bare"),
        allocate(node, "e", "unknown"),
    ]
    for one in wanted:
        assert not isinstance((await claims.prepare([one]))[one.uid], str)
    assert extended(node) == {"a": NAME, "b": NAME, "c": "", "d": "", "e": ""}
    assert simulated.asked.count("GET deviceclasses") == len({"things", "bare", "unknown"}), "each is asked for once"


async def test_a_claim_is_prepared_without_the_right_to_see_classes(node: ClaimNode, simulated: Simulated) -> None:
    claims = await node.gateway(ClaimedResource(lanes(), Device("a")))
    simulated.forbidden.add(("list", "deviceclasses"))
    one = allocate(node, "a", "things")
    assert not isinstance((await claims.prepare([one]))[one.uid], str)
    assert extended(node) == {"a": ""}


async def test_a_class_that_cant_be_read_is_read_for_the_next_claim(node: ClaimNode, simulated: Simulated) -> None:
    claims = await node.gateway(ClaimedResource(lanes(), Device("a"), Device("b")))
    simulated.faults.append(("GET deviceclasses", 500, {}))
    for name in "ab":
        one = allocate(node, name, "things")
        assert not isinstance((await claims.prepare([one]))[one.uid], str)
    assert extended(node) == {"a": "", "b": NAME}

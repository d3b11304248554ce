"""Claims with adminAccess: they show devices that others have, and hold nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpgateway import Device, Health
from dpgateway.dra.claims.reading import Asked
from tests.dra.claim_node import IN_VAIN, ClaimedResource, ClaimNode, lanes, one
from tests.support.waiting import until


@pytest.fixture
def resource() -> ClaimedResource:
    return ClaimedResource(lanes("prepare", "release"), Device("a"), Device("b", Health.unhealthy("no link")))


def admin(node: ClaimNode, name: str, *devices: str) -> Asked:
    return node.allocate(name, *devices, adminAccess=True)


def spec(node: ClaimNode, name: str) -> Any:
    for path in node.specs.glob("*.json"):
        found = json.loads(path.read_text())
        if f"{found['kind']}={found['devices'][0]['name']}" == name:
            return found["devices"][0]["containerEdits"]
    raise AssertionError(f"no spec of {name}")


async def test_it_gets_a_device_that_another_claim_has(node: ClaimNode, resource: ClaimedResource) -> None:
    claims, user = await node.gateway(resource), node.allocate("c", "a")
    await claims.prepare([user])
    (answer,) = await one(await claims.prepare([admin(node, "monitor", "a")]))
    assert answer.device == "a"
    assert [it["path"] for it in spec(node, answer.cdi[0])["deviceNodes"]] == ["/dev/a"]
    assert resource.lanes.allocated == [("a",)]
    assert resource.lanes.prepared == ["a"]
    assert node.records["monitor"]["given"][0]["admin"] is True
    assert node.records["monitor"]["given"][0]["ids"] == []


async def test_it_holds_nothing_and_releases_nothing(node: ClaimNode, resource: ClaimedResource) -> None:
    claims, asked = await node.gateway(resource, patience=IN_VAIN), admin(node, "monitor", "a")
    await claims.prepare([asked])
    assert len(await one(await claims.prepare([node.allocate("c", "a")]))) == 1
    await claims.unprepare([asked])
    assert resource.lanes.released == []
    await until(lambda: list(node.records) == ["c"])
    assert "free" in await one(await claims.prepare([node.allocate("d", "a")]))


async def test_each_has_a_spec_of_its_own(node: ClaimNode, resource: ClaimedResource) -> None:
    """The end of one takes nothing from the others."""
    claims, user = await node.gateway(resource), node.allocate("c", "a")
    names = [(await one(await claims.prepare([user])))[0].cdi[0]]
    monitors = [admin(node, name, "a") for name in ("first", "second")]
    names += [(await one(await claims.prepare([asked])))[0].cdi[0] for asked in monitors]
    assert len(set(names)) == 3
    await claims.unprepare([monitors[0]])
    assert spec(node, names[0])
    assert spec(node, names[2])
    assert len(list(node.specs.glob("*.json"))) == 2
    key = claims.store.records[monitors[1].uid].given[0].spec_ids(monitors[1].uid)
    assert resource.usage.value.one_has(key)
    assert not resource.usage.value.one_has([key[0].replace(monitors[1].uid, monitors[0].uid)])


async def test_it_may_have_an_unhealthy_device(node: ClaimNode, resource: ClaimedResource) -> None:
    """The scheduler gives one only to a claim that tolerates its taint."""
    claims = await node.gateway(resource)
    assert len(await one(await claims.prepare([admin(node, "monitor", "b", "a")]))) == 2
    assert "no link" in await one(await claims.prepare([node.allocate("c", "b")]))


async def test_another_gateway_knows_it(node: ClaimNode, resource: ClaimedResource) -> None:
    asked = admin(node, "monitor", "a")
    first = await (await node.gateway(resource)).prepare([asked])
    other = ClaimedResource(lanes("release"), Device("a"))
    claims = await node.gateway(other)
    assert await claims.prepare([asked]) == first
    assert other.usage.value.taken == frozenset()
    await claims.unprepare([asked])
    assert (node.records, other.lanes.released, list(node.specs.glob("*.json"))) == ({}, [], [])


async def test_a_device_that_is_gone_is_refused(node: ClaimNode, resource: ClaimedResource) -> None:
    claims = await node.gateway(resource)
    assert "no resource here has a device x" in await one(await claims.prepare([admin(node, "monitor", "x")]))
    assert node.records == {}


async def test_a_damaged_record_is_no_obstacle(node: ClaimNode, resource: ClaimedResource) -> None:
    folder = node.files.folder
    (folder / "uid-1.json").write_text("{")
    claims = await node.gateway(resource)
    assert len(await one(await claims.prepare([admin(node, "monitor", "a")]))) == 1

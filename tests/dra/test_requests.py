"""Claims with several requests, pools and pods."""

from __future__ import annotations

from typing import Any

import pytest

from dpgateway import Device
from dpgateway.dra.claims.reading import Asked
from dpgateway.errors import DriverError
from tests.dra.claim_node import DRIVER, IN_VAIN, POOL, ClaimedResource, ClaimNode, lanes, one
from tests.support.waiting import until

OTHER, OTHER_POOL = "example.com/other", "n1/example.com/other"


@pytest.fixture
def thing() -> ClaimedResource:
    return ClaimedResource(lanes("release"), Device("a"), Device("b"), Device("c"))


@pytest.fixture
def other() -> ClaimedResource:
    return ClaimedResource(lanes("release"), Device("x"), name=OTHER, pool=OTHER_POOL)


async def prepared(
    node: ClaimNode, thing: ClaimedResource, other: ClaimedResource, asked: Asked, patience: float = 30.0
) -> Any:
    claims = await node.gateway(thing, patience=patience)
    claims.store.add(OTHER, other)
    answers = await one(await claims.prepare([asked]))
    return answers if isinstance(answers, str) else [(it.request, it.device, len(it.cdi)) for it in answers]


def claim(node: ClaimNode, *results: tuple[str, str, str, str]) -> Asked:
    """Of request, driver, pool and device of each result."""
    names = "request", "driver", "pool", "device"
    return node.allocate_results("c", [dict(zip(names, it, strict=True)) for it in results])


@pytest.mark.parametrize(
    ("results", "expected", "calls"),
    [
        ([("r", DRIVER, POOL, "a"), ("r", DRIVER, POOL, "b")], [("r", "a", 1), ("r", "b", 0)], [("a", "b")]),
        ([("r", DRIVER, POOL, "a"), ("s", DRIVER, POOL, "b")], [("r", "a", 1), ("s", "b", 1)], [("a",), ("b",)]),
        ([("r/big", DRIVER, POOL, "a")], [("r", "a", 1)], [("a",)]),
        ([("r", "other", POOL, "a"), ("r", DRIVER, POOL, "b")], [("r", "b", 1)], [("b",)]),
        ([("r", DRIVER, POOL, "a"), ("r", DRIVER, OTHER_POOL, "x")], [("r", "a", 1), ("r", "x", 1)], [("a",)]),
    ],
    ids=["two devices", "two requests", "an alternative", "another driver's", "two pools"],
)
async def test_each_request_gets_its_devices(  # noqa: PLR0917  a table's columns
    node: ClaimNode, thing: ClaimedResource, other: ClaimedResource, results: Any, expected: Any, calls: Any
) -> None:
    """A request's CDI names belong to its first device of a pool, and the driver is asked once for each of these."""
    assert await prepared(node, thing, other, claim(node, *results)) == expected
    assert thing.lanes.allocated == calls


async def test_a_request_that_fails_gives_back_the_others(
    node: ClaimNode, thing: ClaimedResource, other: ClaimedResource
) -> None:
    other.lanes.error = DriverError("no")
    results = [("r", DRIVER, POOL, "a"), ("s", DRIVER, OTHER_POOL, "x")]
    assert "no" in await prepared(node, thing, other, claim(node, *results))
    await until(lambda: not node.records)  # it stays until the release
    assert thing.lanes.released == ["a"]


async def test_two_resources_have_the_same_ids(node: ClaimNode, thing: ClaimedResource) -> None:
    other = ClaimedResource(lanes("release"), Device("a"), name=OTHER, pool=OTHER_POOL)
    asked = claim(node, ("r", DRIVER, POOL, "a"), ("s", DRIVER, OTHER_POOL, "a"))
    assert await prepared(node, thing, other, asked, patience=0.2) == [("r", "a", 1), ("s", "a", 1)]


async def test_of_resources_with_one_name_the_published_one_is_given(node: ClaimNode, thing: ClaimedResource) -> None:
    """Slices have the device of the resource that comes first by its name, whichever was served first."""
    name = "a.example/thing"
    first, claims = ClaimedResource(lanes(), Device("a"), name=name), await node.gateway(thing)
    claims.store.add(name, first)
    assert await one(await claims.prepare([node.allocate("c", "a")]))
    assert (first.lanes.allocated, thing.lanes.allocated) == ([("a",)], [])


async def test_pods_that_share_a_claim_share_its_devices(node: ClaimNode, thing: ClaimedResource) -> None:
    """Whether one after the other or both at once; so do an init container and a container of one request."""
    claims, asked = await node.gateway(thing), node.allocate("c", "a")
    first, second = await claims.prepare([asked]), await claims.prepare([asked])
    assert first == second
    assert thing.lanes.allocated == [("a",)]
    await claims.unprepare([asked])
    assert thing.lanes.released == ["a"]


async def test_one_device_in_two_requests_is_refused(
    node: ClaimNode, thing: ClaimedResource, other: ClaimedResource
) -> None:
    """Never from a scheduler, unless a device is shared."""
    results = [("r", DRIVER, POOL, "a"), ("s", DRIVER, POOL, "a")]
    assert "0 of 1 shares free" in await prepared(node, thing, other, claim(node, *results), IN_VAIN)
    assert node.records == {}

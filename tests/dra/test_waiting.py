"""What a claim waits for before it is prepared, and what it is refused for at once."""

from __future__ import annotations

import asyncio

from dpgateway import Device
from dpgateway.resource.use import HardwareUse
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.dra.claim_node import IN_VAIN, POOL, ClaimNode, lanes, one
from tests.dra.claim_node import ClaimedResource as Resource
from tests.support.resources import NAME
from tests.support.waiting import turns, until


async def test_a_claim_of_a_pool_that_has_gone_to_the_device_plugin(node: ClaimNode) -> None:
    resource = Resource(lanes(), Device("a"), Device("b"))
    claims = await node.gateway(resource)
    before = await one(await claims.prepare([asked := node.allocate("c", "a")]))
    claims.waits.gone = lambda pool: "delete the pod" if pool == POOL else ""
    assert await one(await claims.prepare([asked])) == before, "it has its device"
    assert "delete the pod" in await one(await claims.prepare([node.allocate("d", "b")]))
    assert node.records.keys() == {"c"}


async def test_a_claim_waits_for_hardware_that_another_name_has(node: ClaimNode) -> None:
    """The scheduler gives it away once the pod that had it was deleted by force."""
    resource = Resource(lanes(), Device("a"))
    claims = await node.gateway(resource)
    other = HardwareUse("example.com/other", known=True, ids=frozenset("x"), by_hardware={"a": ["x"]})
    resource.inventory.exclusion.exclude([other])
    preparing = asyncio.create_task(claims.prepare([node.allocate("c", "a")]))
    await turns(200)
    assert not preparing.done()
    assert node.records == {}
    resource.inventory.exclusion.exclude([])
    assert (await one(await preparing))[0].device == "a"


async def test_hardware_that_another_name_keeps_is_not_given(node: ClaimNode) -> None:
    resource = Resource(lanes(), Device("a"))
    claims = await node.gateway(resource, patience=IN_VAIN)
    other = HardwareUse(
        "example.com/other", known=True, ids=frozenset("x"), by_hardware={"a": ["x"]}, holders={"x": "d/p"}
    )
    resource.inventory.exclusion.exclude([other])
    assert "held as example.com/other by d/p" in await one(await claims.prepare([node.allocate("c", "a")]))


async def test_an_account_that_is_refused_for_a_moment(node: ClaimNode, simulated: Simulated) -> None:
    """An API server that has just started knows no accounts yet."""
    claims = await node.gateway(Resource(lanes(), Device("a")))
    simulated.token = "another"  # noqa: S105  of a simulated server
    preparing = asyncio.create_task(claims.prepare([node.allocate("c", "a")]))
    await until(lambda: simulated.asked.count("GET resourceclaims c") > 2)
    simulated.token = None
    assert (await one(await preparing))[0].device == "a"


async def test_a_gateway_that_ends_without_its_account_says_so(node: ClaimNode, simulated: Simulated) -> None:
    """Its pod was deleted by force, and its token is no good any more."""
    claims = await node.gateway(Resource(lanes(), Device("a")))
    simulated.token = "another"  # noqa: S105  of a simulated server
    preparing = asyncio.create_task(claims.prepare([node.allocate("c", "a")]))
    await until(lambda: simulated.asked.count("GET resourceclaims c") > 2)
    claims.waits.end()
    found = await one(await preparing)
    assert "claim default/c" in found
    assert "this gateway is ending" in found
    assert "status 401" in found


async def test_a_new_claim_waits_for_an_api_server_that_is_away(node: ClaimNode, simulated: Simulated) -> None:
    claims = await node.gateway(Resource(lanes(), Device("a")))
    asked = node.allocate("c", "a")
    await simulated.down()
    call = asyncio.create_task(claims.prepare([asked]))
    await until(lambda: node.server.up is False)
    await simulated.up()
    (answer,) = await one(await call)
    assert answer.device == "a"


async def test_after_a_boot_it_waits_for_its_resource(node: ClaimNode) -> None:
    asked = node.allocate("c", "a")
    await (await node.gateway(Resource(lanes(), Device("a")))).prepare([asked])
    claims = await node.gateway(boot="boot-2")
    claims.store.elsewhere = lambda _: None
    preparing = asyncio.create_task(claims.prepare([asked]))
    await turns()
    claims.store.add(NAME, Resource(lanes(), Device("a")))
    (answer,) = await one(await preparing)
    assert answer.device == "a"


async def test_a_claim_that_waits_for_its_resource_holds_up_no_other_gateway(node: ClaimNode) -> None:
    asked = node.allocate("c", "a")
    await (await node.gateway(Resource(lanes(), Device("a")))).prepare([asked])
    claims = await node.gateway(boot="boot-2")
    claims.store.elsewhere = lambda _: None
    preparing = asyncio.create_task(claims.prepare([asked]))
    await turns()
    claims.waits.ask(asked=True)
    assert "isn't served yet" in await one(await preparing)
    await claims.idle()


async def test_a_claim_waits_for_the_end_of_another(node: ClaimNode) -> None:
    resource = Resource(lanes("release"), Device("a"))
    claims, first = await node.gateway(resource), node.allocate("c", "a")
    await claims.prepare([first])
    second = asyncio.create_task(claims.prepare([node.allocate("d", "a")]))
    await claims.unprepare([first])
    assert (await one(await second))[0].device == "a"

"""A value with a version: everybody sees the newest, nobody takes it away from another."""

import asyncio

import pytest

from dpgateway.deviceplugin.offer.inventory import Inventory
from dpgateway.model import Health, Offer


def listed(*offers):
    return {offer.id: offer for offer in offers}


A, B = Offer("a"), Offer("b", numa_nodes=(1,))
WET, DRY = Health.unhealthy("wet"), Health.unhealthy("dry")


def test_nothing_is_offered_at_first():
    assert Inventory().current is None


@pytest.mark.parametrize(
    ("offers", "news"),
    [
        (listed(A, B), False),
        (listed(B, A), False),
        (listed(A), True),
        (listed(A, B, Offer("c")), True),
        (listed(Offer("a", WET), B), True),
        (listed(A, Offer("b", numa_nodes=())), True),
        ({}, True),
    ],
)
def test_a_version_is_what_a_kubelet_can_see(offers, news):
    inventory = Inventory()
    assert inventory.publish(listed(A, B))
    assert inventory.publish(offers) == news
    assert inventory.current.version == 1 + news
    assert inventory.current.offers == offers


def test_another_reason_is_kept_without_a_new_version():
    inventory = Inventory()
    inventory.publish(listed(Offer("a", WET)))
    assert not inventory.publish(listed(Offer("a", DRY)))
    assert inventory.current.version == 1
    assert inventory.current.offers["a"].health == DRY


def test_an_empty_first_list_is_a_version():
    inventory = Inventory()
    assert inventory.publish({})
    assert inventory.current.version == 1


async def test_every_reader_gets_the_newest_and_skips_the_rest():
    inventory = Inventory()
    readers = [asyncio.create_task(inventory.newer(version)) for version in (0, 0, 1, 2)]
    await asyncio.sleep(0)
    inventory.publish(listed(A))
    inventory.publish(listed(B))
    async with asyncio.timeout(5):
        assert [(await reader).version for reader in readers[:3]] == [2, 2, 2]
        assert not readers[3].done()
        inventory.publish({})
        assert (await readers[3]).version == 3


async def test_what_is_newer_already_is_returned_at_once():
    inventory = Inventory()
    inventory.publish(listed(A))
    assert await inventory.newer(0) == inventory.current


async def test_a_reader_that_went_away_takes_nothing_from_the_others():
    inventory = Inventory()
    gone, stays = (asyncio.create_task(inventory.newer(0)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    inventory.publish(listed(A))
    async with asyncio.timeout(5):
        assert (await stays).offers == listed(A)
    assert gone.cancelled()


async def test_a_change_that_nobody_can_see_wakes_nobody():
    inventory = Inventory()
    inventory.publish(listed(Offer("a", WET)))
    reader = asyncio.create_task(inventory.newer(1))
    inventory.publish(listed(Offer("a", DRY)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reader.done()
    reader.cancel()

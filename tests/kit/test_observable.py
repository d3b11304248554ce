"""A value with a version: everybody sees the newest, nobody takes it away from another."""

import asyncio

from dpgateway.kit.observable import Observable
from tests.support.waiting import turns


async def test_who_waits_is_woken_by_the_next_change_and_not_before():
    some = Observable("a")
    waiting = asyncio.ensure_future(some.newer(0))
    await turns()
    assert not waiting.done()
    some.publish("b")
    assert await waiting == 1
    assert some.value == "b"


async def test_whoever_is_behind_gets_the_newest_at_once():
    some = Observable("a")
    for value in "bcd":
        some.publish(value)
    assert await asyncio.wait_for(some.newer(1), 20) == 3
    assert await asyncio.wait_for(some.newer(-1), 20) == 3
    assert some.value == "d"


async def test_all_who_wait_are_woken_and_one_that_gives_up_takes_nothing_away():
    some = Observable(0)
    waiting = [asyncio.ensure_future(some.newer(0)) for _ in range(5)]
    await turns()
    waiting[2].cancel()
    some.publish(1)
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [version for version in done if version == 1] == [1] * 4


async def test_an_amended_value_wakes_nobody():
    some = Observable("a")
    waiting = asyncio.ensure_future(some.newer(0))
    some.amend("b")
    await turns()
    assert not waiting.done()
    assert (some.value, some.version) == ("b", 0)
    waiting.cancel()

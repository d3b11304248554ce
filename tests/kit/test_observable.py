"""A value with a version: everybody sees the newest, nobody takes it away from another."""

import asyncio
from typing import Any

from dpgateway.kit.observable import Observable, Signal
from tests.support.waiting import turns


async def test_woken_by_the_next_change():
    some = Observable("a")
    waiting = asyncio.ensure_future(some.wait(0))
    await turns()
    assert not waiting.done()
    some.set("b")
    assert await waiting == 1
    assert some.value == "b"


async def test_whoever_is_behind_gets_the_newest_at_once():
    some = Observable("a")
    for value in "bcd":
        some.set(value)
    assert await asyncio.wait_for(some.wait(1), 20) == 3
    assert await asyncio.wait_for(some.wait(-1), 20) == 3
    assert some.value == "d"


async def test_all_waiters_wake_but_a_cancelled_one():
    some = Observable(0)
    waiting = [asyncio.ensure_future(some.wait(0)) for _ in range(5)]
    await turns()
    waiting[2].cancel()
    some.set(1)
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [version for version in done if version == 1] == [1] * 4


async def test_a_value_that_is_no_news_wakes_nobody():
    some, told = Observable("a", news=lambda new, old: len(new) != len(old)), []
    some.subscribe(lambda: told.append(some.value))
    waiting = asyncio.ensure_future(some.wait(0))
    assert not some.set("b")
    await turns()
    assert not waiting.done()
    assert (some.value, some.version, told) == ("b", 0, ["b"])
    assert some.set("bc")
    assert await waiting == 1
    assert told == ["b", "bc"]


def test_the_same_object_is_no_news():
    some, value = Observable("", news=lambda new, old: True), "a"
    assert some.set(value)
    assert not some.set(value)
    assert some.version == 1
    some.notify()
    assert some.version == 2


async def test_a_subscriber_is_called_once_for_each_event():
    signal, told = Signal(), []

    def changed():
        told.append(signal.version)

    signal.subscribe(changed)
    signal.subscribe(changed)
    signal.notify()
    signal.notify()
    assert told == [1, 2]


async def test_a_condition_is_waited_for_and_may_hold_already():
    some = Observable(1)
    await some.wait_for(lambda value: value == 1)
    waiting = asyncio.ensure_future(some.wait_for(lambda value: value > 2))
    for value in (2, 3):
        await turns()
        assert not waiting.done()
        some.set(value)
    await waiting


async def test_a_part_wakes_its_waiter_only_when_it_differs():
    value: Observable[dict[str, Any]] = Observable({"a": [1], "b": 0})
    waiting = asyncio.ensure_future(value.wait_other(lambda both: both["a"], [1]))
    for same in ({"a": [1], "b": 1}, {"a": [1], "b": 2}):
        value.set(same)
        await asyncio.sleep(0)
    assert not waiting.done()
    value.set({"a": [2], "b": 2})
    assert await waiting == [2]
    assert await value.wait_other(lambda both: both["a"], [1]) == [2]

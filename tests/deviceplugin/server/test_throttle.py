import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from dpgateway.deviceplugin.api import APIS, Api
from dpgateway.deviceplugin.server.streams import WRITE_WITHIN, End, Lists, ListThrottle
from dpgateway.kit.observable import Observable, Signal
from dpgateway.model import Health
from dpgateway.resource.shares import Offer
from tests.support.time import advance, in_virtual_time

Listed = Observable[Mapping[str, Offer] | None]
PACED = replace(APIS[0], pause=0.01, forgetful=())


def inventory() -> Listed:
    made = Listed(None)
    made.set({"a": Offer("a")})
    return made


async def sent(lists: Lists, api: Api, times: list[float], messages: int = 1) -> list[bytes]:
    """The first messages of a stream, and when they came."""
    got = []
    stream = lists.watch(api, False, End(), lambda: None)
    async for message in stream:
        times.append(asyncio.get_running_loop().time())
        got.append(message)
        if len(got) == messages:
            break
    await stream.aclose()
    return got


@in_virtual_time
async def test_lists_of_all_resources_keep_the_pause_of_the_api():
    throttle = ListThrottle(Signal())
    times: list[float] = []
    began = asyncio.get_running_loop().time()
    sending = [asyncio.ensure_future(sent(Lists(inventory(), throttle), PACED, times)) for _ in range(5)]
    await advance(1)
    await asyncio.gather(*sending)
    assert [time - began for time in times] == pytest.approx([count * PACED.pause for count in range(5)])


@in_virtual_time
async def test_a_list_waits_for_the_checkpoint():
    written = Signal()
    throttle, loop = ListThrottle(written), asyncio.get_running_loop()
    began = loop.time()
    await throttle.turn(0.01, writes=True)
    loop.call_later(0.2, written.notify)
    await throttle.turn(0.01, writes=True)
    assert loop.time() - began == pytest.approx(0.2)


@in_virtual_time
async def test_a_blind_watch_is_waited_for_once():
    written = Signal()
    throttle, loop = ListThrottle(written), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(3):
        await throttle.turn(0.01, writes=True)
    assert loop.time() - began == pytest.approx(0.01 + WRITE_WITHIN + 0.01)
    written.notify()
    await throttle.turn(0.01, writes=True)
    began = loop.time()
    await throttle.turn(0.01, writes=True)
    assert loop.time() - began == pytest.approx(0.01 + WRITE_WITHIN)


@in_virtual_time
async def test_an_api_without_a_pause_waits_for_nobody():
    throttle = ListThrottle(Signal())
    times: list[float] = []
    began = asyncio.get_running_loop().time()
    await throttle.turn(60)
    await sent(Lists(inventory(), throttle), APIS[0], times)
    assert times == [began]


async def test_the_newest_list_has_the_turn():
    throttle, one = ListThrottle(Signal()), inventory()
    await throttle.turn(PACED.pause)
    sending = asyncio.ensure_future(sent(Lists(one, throttle), PACED, []))
    await asyncio.sleep(0)
    newest = Offer("a", health=Health.unhealthy("burnt"))
    one.set({"a": newest})
    assert await sending == [PACED.to_offer(newest)]


async def test_a_stream_that_ends_does_not_wait_for_its_turn():
    throttle, end = ListThrottle(Signal()), End()
    await throttle.turn(60)
    stream = Lists(inventory(), throttle).watch(PACED, False, end, lambda: None)
    async with asyncio.timeout(60):
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        end.say()
        with pytest.raises(StopAsyncIteration):
            await reading


async def test_an_end_may_be_said_twice():
    end = End()
    lists = Lists(Observable(None), ListThrottle(Signal()))
    reading = asyncio.ensure_future(anext(lists.watch(APIS[0], False, end, lambda: None)))
    await asyncio.sleep(0)
    end.say()
    await asyncio.sleep(0)
    end.say()  # while the first one is under way
    with pytest.raises(StopAsyncIteration):
        await reading


async def test_an_end_before_the_wait_is_heard():
    end = End()
    end.say()
    async with asyncio.timeout(60):
        for listed in (Listed(None), inventory()):
            with pytest.raises(StopAsyncIteration):
                await anext(Lists(listed, ListThrottle(Signal())).watch(APIS[0], False, end, lambda: None))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_only_the_first_two_kubelets_need_a_pause(api):
    assert bool(api.pause) == (api.name in {"v1alpha1", "v1alpha2"})

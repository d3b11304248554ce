"""The calls of one claim, one after the other."""

import asyncio
import gc

from dpgateway.dra.claims.lanes import ClaimLanes


async def test_calls_of_one_claim_wait_for_one_another():
    lanes, go_on, done = ClaimLanes(), asyncio.Event(), []

    async def first():
        await go_on.wait()
        done.append("first")

    async def second():
        done.append("second")

    lanes.call("a", first)
    last = lanes.call("a", second)
    await lanes.call("b", second)
    assert done == ["second"]
    go_on.set()
    await last
    assert done == ["second", "first", "second"]
    await asyncio.sleep(0)
    assert not lanes.running


async def test_a_failure_after_its_caller_has_gone_is_no_bug():
    """The kubelet ended during its call: asyncio would log the exception as never retrieved, with a traceback."""
    lanes, go_on, said = ClaimLanes(), asyncio.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))

    async def fails():
        await go_on.wait()
        raise OSError("the board is busy")

    caller = asyncio.ensure_future(asyncio.shield(lanes.call("a", fails)))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    go_on.set()
    await asyncio.wait(lanes.running)
    await asyncio.sleep(0)
    gc.collect()
    assert said == []

import asyncio

from dpgateway_simulator import ManualClock


async def test_a_clock_that_is_turned() -> None:
    clock, woken = ManualClock(), []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as tasks:
        for seconds in (3, 1):
            tasks.create_task(sleep(seconds))
        await asyncio.sleep(0)
        clock.advance(1)
        await asyncio.sleep(0)
        assert woken == [1]
        clock.advance(2)
    assert woken == [1, 3]
    assert clock.time() == 3

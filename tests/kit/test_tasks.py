import asyncio
import gc
from functools import partial

import pytest

from dpgateway.kit.tasks import LONGEST_PAUSE, KeyedLanes, aligned, backoff, retry, uncancelled, wait_for
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import turns


def test_pauses_double_up_to_the_longest_for_ever():
    assert [backoff(failures, 10.0) for failures in (1, 2, 3, 4, 5, 100_000)] == [1, 2, 4, 8, 10, 10]
    assert backoff(3, 1.0, 0.01) == 0.04


@in_virtual_time
async def test_all_who_look_now_and_then_look_together():
    looks: dict[float, set[float]] = {2.0: set(), 5.0: set(), 10.0: set()}

    async def look(every):
        while True:
            await asyncio.sleep(aligned(every))
            looks[every].add(round(asyncio.get_running_loop().time(), 6))

    tasks = []
    for every in looks:
        await advance(0.7)  # they began at different times
        tasks.append(asyncio.ensure_future(look(every)))
    began = asyncio.get_running_loop().time()
    await advance(100)
    for task in tasks:
        task.cancel()
    assert looks[10.0] < looks[5.0]
    assert looks[10.0] < looks[2.0]
    assert {every: len({at for at in times if at > began}) for every, times in looks.items()} == {2: 50, 5: 20, 10: 10}


@in_virtual_time
async def test_a_pause_until_the_next_beat():
    for _ in range(30):
        await advance(0.37)
        assert 1.0 <= aligned(2.0) <= 3.0


class Failing:
    """Fails so often, then returns."""

    def __init__(self, times, lives=0.0):
        self.times, self.lives, self.began, self.errors = times, lives, [], []

    async def run(self):
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.lives)
        if len(self.began) <= self.times:
            raise LookupError(len(self.began))


@in_virtual_time
async def test_retry_with_backoff():
    one, began = Failing(4), asyncio.get_running_loop().time()
    task = asyncio.ensure_future(retry(one.run, one.errors.append, longest=5))
    await advance(100)
    assert task.done()
    await task
    assert [time - began for time in one.began] == [0, 1, 3, 7, 12]
    assert [str(error) for error in one.errors] == ["1", "2", "3", "4"]


async def test_what_the_teller_raises_ends_it():
    async def run():
        raise LookupError("a bug")

    def tell(error):
        raise error

    with pytest.raises(LookupError, match="a bug"):
        await retry(run, tell)


@in_virtual_time
async def test_a_cancelled_task_is_not_retried():
    errors: list[Exception] = []

    async def run():
        try:
            await asyncio.sleep(10)
        finally:
            raise LookupError("while it ended")

    task = asyncio.ensure_future(retry(run, errors.append))
    await advance(1)
    task.cancel()
    await advance(100)
    assert task.cancelled()
    assert [str(error) for error in errors] == ["while it ended"]


@in_virtual_time
async def test_a_cancelled_task_ends_at_once_and_is_no_failure():
    one = Failing(1, lives=LONGEST_PAUSE)
    task = asyncio.ensure_future(retry(one.run, one.errors.append))
    await advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.errors == []


@in_virtual_time
async def test_a_timeout_in_a_cancelled_task():
    done = []

    async def run():
        try:
            await asyncio.sleep(10)
        finally:
            done.append(await wait_for(asyncio.sleep(0.5, "in time"), 1))
            with pytest.raises(TimeoutError):
                await wait_for(asyncio.sleep(10), 1)
            done.append("all else")

    task = asyncio.ensure_future(run())
    await advance(1)
    task.cancel()
    await advance(2)
    assert task.cancelled()
    assert done == ["in time", "all else"]


@in_virtual_time
async def test_a_cancellation_at_the_last_moment():
    work = asyncio.Event()
    task = asyncio.ensure_future(wait_for(work.wait(), 1))
    await turns()
    (inner,) = asyncio.all_tasks() - {task, asyncio.current_task()}
    inner.add_done_callback(lambda _: task.cancel())
    work.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def slow(gate, result="done", error=None):
    await gate.wait()
    if error:
        raise error
    return result


async def test_uncancelled_work_returns_and_raises():
    opened = asyncio.Event()
    opened.set()
    assert await uncancelled(slow(opened)) == "done"
    with pytest.raises(LookupError):
        await uncancelled(slow(opened, error=LookupError()))


@pytest.mark.parametrize("error", [None, LookupError()])
async def test_uncancelled_work_survives_cancellations(error):
    opened = asyncio.Event()
    task = asyncio.ensure_future(uncancelled(slow(opened, error=error)))
    for _ in range(3):
        await turns()
        task.cancel()
    await turns()
    assert not task.done()
    opened.set()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.__cause__ is error


async def test_calls_of_one_key_wait_for_one_another():
    lanes, go_on, done = KeyedLanes("claim"), asyncio.Event(), []

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


async def test_a_call_that_times_out_before_its_turn_never_begins():
    lanes, go_on, begun = KeyedLanes("disk of"), asyncio.Event(), []

    async def hangs():
        begun.append("first")
        await go_on.wait()

    async def work(name):
        begun.append(name)
        return name

    with pytest.raises(TimeoutError, match="the disk hasn't answered"):
        await lanes.in_turn("a", hangs, 0.01, "the disk")
    with pytest.raises(TimeoutError):
        await lanes.in_turn("a", partial(work, "second"), 0.01, "the disk")
    go_on.set()
    assert await lanes.in_turn("a", partial(work, "third"), 5, "the disk") == "third"
    assert begun == ["first", "third"]


async def test_a_failure_after_its_caller_has_gone_is_no_bug():
    """Its caller ended during the call: asyncio would log the exception as never retrieved, with a traceback."""
    lanes, go_on, said = KeyedLanes("claim"), asyncio.Event(), []
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

import asyncio
import threading
import time

import pytest

from dpgateway.drivers.allocating import MOST_HUNG, AllocateLane
from dpgateway.errors import DriverError, DriverFault, DriverTimeout
from dpgateway.kit.threads import Threads
from tests.support.waiting import turns, until

SOON = 0.02
LONG = 10


class Lane(AllocateLane):
    """One attempt at a time, each with its own deadline."""

    def __init__(self, name="example.com/thing", threads=None):
        super().__init__(name, threads or Threads())

    async def ask(self, method, function, seconds, late=None):
        """``late`` is called with a late answer."""

        def abandoned(call):
            call.add_done_callback(lambda done: done.exception() or late())

        return await self.call(method, function, seconds, time.monotonic() + seconds, abandoned if late else None)


@pytest.fixture
def lane():
    return Lane()


async def test_the_answer_is_what_the_driver_returned(lane):
    assert await lane.ask("allocate", lambda: "answer", LONG) == "answer"


async def test_calls_run_one_at_a_time_in_order(lane, gate):
    slow, order = gate(), []
    first = asyncio.ensure_future(lane.ask("allocate", slow, LONG))
    await slow.entered()
    others = [
        asyncio.ensure_future(lane.ask("allocate", lambda number=number: order.append(number), LONG))
        for number in range(5)
    ]
    await turns()
    assert order == []
    slow.open()
    await asyncio.gather(first, *others)
    assert order == [0, 1, 2, 3, 4]
    assert slow.most_running == 1


async def test_contract_errors_pass_unchanged(lane, gate):
    opened = gate(DriverError("no more"))
    opened.open()
    with pytest.raises(DriverError, match=r"^no more$"):
        await lane.ask("allocate", opened, LONG)


async def test_other_errors_are_driver_faults(lane, gate):
    opened = gate(SystemExit(3))
    opened.open()
    with pytest.raises(DriverFault, match=r"allocate\(\) raised .*SystemExit: 3"):
        await lane.ask("allocate", opened, LONG)
    assert await lane.ask("allocate", lambda: 1, LONG) == 1


async def test_a_call_past_its_deadline_fails_and_says_so(lane, gate):
    with pytest.raises(DriverTimeout, match=r"^allocate\(\) hasn't answered for 0.02 s$"):
        await lane.ask("allocate", gate(), SOON)


async def test_hung_calls_of_others_cost_no_deadline(gate):
    """However long it would wait for one of the usual threads."""
    threads, hung = Threads(usual=8, patience=600), gate()
    for number in range(8):
        threads.call(f"hung {number}", hung)
    await hung.entered(8)
    assert await Lane(threads=threads).ask("prefer", lambda: "answer", 5) == "answer"


async def test_a_hung_call_loses_the_lane(lane, gate):
    hung = gate()
    with pytest.raises(DriverTimeout):
        await lane.ask("allocate", hung, SOON)
    assert await lane.ask("allocate", lambda: "next", LONG) == "next"
    await hung.entered()
    assert hung.running == 1


async def test_a_late_answer_is_dropped_and_released(lane, gate):
    slow, late = gate("answer"), []
    with pytest.raises(DriverTimeout):
        await lane.ask("allocate", slow, SOON, lambda: late.append("late"))
    assert late == []
    slow.open()
    await until(lambda: late == ["late"])


async def test_a_late_error_releases_nothing(lane, gate):
    slow, late = gate(ValueError("no")), []
    with pytest.raises(DriverTimeout):
        await lane.ask("allocate", slow, SOON, lambda: late.append("late"))
    slow.open()
    await until(lambda: not slow.running)
    await turns()
    assert late == []


@pytest.mark.parametrize("answer", ["answer", ValueError("no")])
async def test_a_late_answer_without_a_callback(lane, gate, answer):
    """Such as that of ``prefer``."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    slow = gate(answer)
    with pytest.raises(DriverTimeout):
        await lane.ask("prefer", slow, SOON)
    slow.open()
    await until(lambda: not slow.running)
    assert await lane.ask("prefer", lambda: 1, LONG) == 1
    await turns()
    assert complaints == []


async def test_a_cancelled_call_keeps_the_lane(lane, gate):
    slow, late = gate("answer"), []
    task = asyncio.ensure_future(lane.ask("allocate", slow, LONG, lambda: late.append("late")))
    await slow.entered()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    following = asyncio.ensure_future(lane.ask("allocate", lambda: "next", LONG))
    await turns()
    assert not following.done()
    slow.open()
    assert await following == "next"
    assert late == ["late"]


async def test_a_cancelled_hung_call_loses_the_lane(lane, gate):
    hung, late, began = gate("answer"), [], time.monotonic()
    task = asyncio.ensure_future(lane.ask("allocate", hung, 0.3, lambda: late.append("late")))
    await asyncio.sleep(0)  # the call is under way
    task.cancel()
    assert await lane.ask("allocate", lambda: "next", LONG) == "next"
    assert time.monotonic() - began >= 0.3
    await hung.entered()
    assert hung.running == 1
    hung.open()
    await until(lambda: late == ["late"])
    assert await lane.ask("allocate", lambda: "next", LONG) == "next"


async def test_cancelled_calls_refuse_no_other(lane, gate):
    """Nor does the driver get them all at once."""
    for _ in range(2 * MOST_HUNG):
        slow = gate("answer")
        task = asyncio.ensure_future(lane.ask("allocate", slow, LONG))
        await slow.entered()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        following = asyncio.ensure_future(lane.ask("allocate", lambda: "next", LONG))
        waiting = [asyncio.ensure_future(lane.ask("allocate", gate(), LONG)) for _ in range(MOST_HUNG)]
        await turns()
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert not following.done()
        slow.open()
        assert await following == "next"


async def test_an_answer_during_cancellation_is_released(lane):
    late, answered = [], threading.Event()

    def answers_at_once():
        answered.set()
        return "answer"

    task = asyncio.ensure_future(lane.ask("allocate", answers_at_once, LONG, lambda: late.append("late")))
    await asyncio.sleep(0)  # the call is under way, and the loop doesn't turn until it has been cancelled
    answered.wait(20)
    time.sleep(0.01)  # noqa: ASYNC251  lets the thread hand its answer to the loop, which is what is cancelled
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: late == ["late"])


async def test_a_call_cancelled_before_its_turn(lane, gate):
    slow, never = gate(), gate()
    first = asyncio.ensure_future(lane.ask("allocate", slow, LONG))
    await slow.entered()
    waiting = asyncio.ensure_future(lane.ask("allocate", never, LONG))
    await turns()
    waiting.cancel()
    await turns()
    slow.open()
    await first
    assert await lane.ask("allocate", lambda: 1, LONG) == 1
    assert never.calls == []


async def test_the_deadline_includes_waiting(lane, gate):
    slow = gate()
    first = asyncio.ensure_future(lane.ask("allocate", slow, LONG))
    await slow.entered()
    with pytest.raises(DriverTimeout, match=r"prefer\(\) wasn't called within 0.02 s, behind allocate\(\) for \d+ s"):
        await lane.ask("prefer", lambda: 1, SOON)
    slow.open()
    await first


async def test_four_hung_calls_fail_the_next_at_once(lane, gate):
    hung = gate()
    for _ in range(MOST_HUNG):
        with pytest.raises(DriverTimeout, match="hasn't answered"):
            await lane.ask("allocate", hung, SOON)
    await hung.entered(MOST_HUNG)
    with pytest.raises(
        DriverTimeout, match=r"prefer\(\) isn't called, because 4 calls hang: (allocate\(\) for \d+ s(, )?){4}$"
    ):
        async with asyncio.timeout(9):
            await lane.ask("prefer", hung, LONG)
    assert len(hung.calls) == 4


async def test_the_lane_opens_when_a_hung_call_returns(lane, gate):
    hung, last, late = gate(), gate("answer"), []
    for blocking in (hung, hung, hung, last):
        with pytest.raises(DriverTimeout):
            await lane.ask("allocate", blocking, SOON, lambda: late.append("late"))
    last.open()
    await until(lambda: late == ["late"])
    assert await lane.ask("allocate", lambda: 1, LONG) == 1


async def test_threads_given_up_end_with_their_calls(gate):
    lane, hung = Lane("ending"), gate()
    for _ in range(3):
        with pytest.raises(DriverTimeout):
            await lane.ask("allocate", hung, SOON)
    hung.open()
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "ending allocate"])

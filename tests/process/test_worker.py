import asyncio
import subprocess
import sys
import threading

import pytest

from dpgateway.process.worker import Worker
from tests.support.waiting import until


@pytest.fixture
def worker():
    worker = Worker("test worker")
    yield worker
    worker.retire()


def named(name):
    return [thread for thread in threading.enumerate() if thread.name == name]


async def test_calls_run_one_after_another_in_order_on_one_thread_of_its_name(worker):
    seen = []
    futures = [
        worker.call(lambda number=number: seen.append((number, threading.current_thread().name)))
        for number in range(20)
    ]
    await asyncio.gather(*futures)
    assert seen == [(number, "test worker") for number in range(20)]
    assert len(named("test worker")) == 1


async def test_there_is_no_thread_before_the_first_call():
    Worker("idle worker")
    assert not named("idle worker")


async def test_what_a_call_raises_is_what_its_future_raises_and_the_next_call_runs(worker):
    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await worker.call(fails)
    assert await worker.call(lambda: 3) == 3


class OfItsOwn(BaseException):
    pass


class Unprintable(OfItsOwn):
    def __str__(self):
        raise ValueError

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(1),
        asyncio.CancelledError(),
        OfItsOwn("no"),
        BaseExceptionGroup("many", [SystemExit()]),
        Unprintable(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_would_steer_the_event_loop_becomes_an_error_that_names_it(worker, error):
    def fails():
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__) as caught:
        await worker.call(fails)
    assert caught.value.__cause__ is error
    assert await worker.call(lambda: 3) == 3


async def test_a_cancelled_future_abandons_the_result_not_the_call(worker, gate):
    slow = gate("late")
    future = worker.call(slow)
    await slow.entered()
    future.cancel()
    slow.open()
    assert await worker.call(lambda: "next") == "next"
    assert future.cancelled()


async def test_a_retired_worker_ends_its_thread_after_the_calls_that_it_has(gate):
    worker, slow = Worker("retiring"), gate("done")
    future = worker.call(slow)
    worker.retire()
    slow.open()
    assert await future == "done"
    await until(lambda: not named("retiring"))


def test_a_result_after_the_loop_was_closed_is_dropped_in_silence(gate, recwarn):
    worker, slow = Worker("outliving"), gate(1)

    async def main():
        worker.call(slow)
        await slow.entered()

    asyncio.run(main())
    slow.open()
    worker.retire()
    for thread in named("outliving"):
        thread.join(5)
    assert not named("outliving")
    assert not [warning for warning in recwarn if warning.category is not ResourceWarning]  # of other tests


def test_a_call_that_hangs_does_not_hold_up_the_exit_of_the_interpreter():
    program = (
        "import asyncio, threading\n"
        "from dpgateway.process.worker import Worker\n"
        "async def main():\n"
        "    begun = threading.Event()\n"
        "    Worker('w').call(lambda: (begun.set(), threading.Event().wait()))\n"
        "    begun.wait()\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=10, check=False).returncode == 0

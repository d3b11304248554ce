import asyncio
import contextlib
import functools
import gc
import math
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpgateway.errors import NoThread
from dpgateway.kit.threads import Threads
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import until

FOR_EVER = 600.0


@pytest.fixture
def ours():
    """The threads that this test started and that are alive."""
    before = set(threading.enumerate())
    return lambda: set(threading.enumerate()) - before


@pytest.fixture
def out_of_threads():
    """Makes the system refuse new threads: their stacks would be larger than all memory that can be addressed."""

    @contextlib.contextmanager
    def out():
        usual = threading.stack_size(2**48)
        try:
            yield
        finally:
            threading.stack_size(usual)

    return out


def name():
    return threading.current_thread().name


async def soon(future):
    return await asyncio.wait_for(future, 20)


async def test_a_call_names_its_daemon_thread(ours):
    threads = Threads()
    assert not ours()
    assert await threads.call("one", lambda: (name(), threading.current_thread().daemon)) == ("one", True)
    assert threads.run("two", name, 20) == "two"
    assert {thread.name for thread in ours()} == {"idle"}


async def test_calls_one_after_another_share_a_thread(ours):
    threads = Threads()
    assert {await threads.call("one", threading.get_ident) for _ in range(100)} == {
        threads.run("one", threading.get_ident, 20) for _ in range(100)
    }
    assert len(ours()) == 1


async def test_a_burst_uses_the_usual_threads(ours, gate):
    threads, slow = Threads(usual=8, patience=FOR_EVER), gate("done")
    calls = [threads.call(f"call {number}", slow) for number in range(64)]
    await slow.entered(8)
    assert {thread.name for thread in ours()} == {f"call {number}" for number in range(8)}
    slow.open()
    assert await soon(asyncio.gather(*calls)) == ["done"] * 64
    assert slow.most_running == len(ours()) == 8


async def test_what_is_begun_never_waits_for_a_thread(ours, gate):
    threads, slow = Threads(usual=1, patience=FOR_EVER), gate("done")
    begun = [threads.begin("begun", slow) for _ in range(10)]
    await slow.entered(10)
    slow.open()
    assert [future.result(20) for future in begun] == ["done"] * 10
    assert len(ours()) == 10


async def test_waiting_calls_begin_in_order(gate):
    threads, slow = Threads(usual=1, patience=FOR_EVER), gate()
    begun: list[int] = []
    threads.call("slow", slow)
    calls = [threads.call("next", functools.partial(begun.append, number)) for number in range(20)]
    slow.open()
    await soon(asyncio.gather(*calls))
    assert begun == list(range(20))


async def test_calls_that_hang_do_not_delay_others(ours, gate):
    threads, hung = Threads(), gate()
    for number in range(30):
        threads.call(f"hung {number}", hung)
    await hung.entered(30)
    assert await soon(threads.call("31st", lambda: 31)) == 31
    assert len([thread for thread in ours() if thread.name.startswith("hung")]) == 30


def test_calls_that_hang_do_not_delay_a_run(gate):
    threads, hung = Threads(), gate()
    for _ in range(10):
        with pytest.raises(TimeoutError):
            threads.run("hung", hung, 0.01)
    assert threads.run("next", lambda: 3, 10) == 3


@in_virtual_time
@pytest.mark.parametrize(("seconds", "begins"), [(1, 0.1), (50, 5), (60, 5), (math.inf, 5)])
async def test_a_call_waits_a_tenth_of_its_deadline(gate, seconds, begins):
    """And as long as its patience, at most."""
    threads, hung, begun = Threads(usual=1, patience=5), gate(), threading.Event()
    threads.call("hung", hung)
    threads.call("waiting", begun.set, seconds)
    await advance(begins * 0.98)
    assert not begun.is_set()
    await advance(begins * 0.02)
    assert begun.wait(20)


def test_a_run_waits_a_tenth_of_its_deadline(gate):
    threads, hung = Threads(usual=1, patience=FOR_EVER), gate()
    with pytest.raises(TimeoutError):
        threads.run("hung", hung, 0.01)
    began = time.monotonic()
    assert threads.run("next", lambda: 3, 10) == 3
    assert time.monotonic() - began < 9


def test_runs_that_waited_return_at_once():
    threads, began = Threads(usual=1, patience=FOR_EVER), time.monotonic()
    with ThreadPoolExecutor(4) as callers:
        list(callers.map(lambda _: threads.run("blocks", lambda: time.sleep(0.002), 60), range(100)))
    assert time.monotonic() - began < 50  # or as long as their callers would have waited


async def test_a_waiting_call_runs_once(gate, ours):
    threads, slow = Threads(usual=1, patience=0.01, idle=0), gate()
    runs: list[int] = []
    threads.call("slow", slow)
    await slow.entered()
    calls = [threads.call("next", functools.partial(runs.append, number)) for number in range(50)]
    slow.open()  # while their patience ends
    await soon(asyncio.gather(*calls))
    await until(lambda: not ours())
    assert sorted(runs) == list(range(50))


async def test_idle_threads_end(ours, gate):
    threads, hung = Threads(patience=0.01, idle=0.05), gate()
    calls = [threads.call("hung", hung) for _ in range(30)]
    await hung.entered(30)
    hung.open()
    await soon(asyncio.gather(*calls))
    await until(lambda: not ours())
    assert await soon(threads.call("next", lambda: 3)) == 3


async def test_threads_that_are_not_needed_end_while_others_work(ours, gate):
    threads, slow = Threads(usual=8, idle=0.2), gate()
    calls = [threads.call("slow", slow) for _ in range(8)]
    await slow.entered(8)
    slow.open()
    await soon(asyncio.gather(*calls))
    end = time.monotonic() + 20
    while len(ours()) > 1:
        await soon(threads.call("one of many", lambda: None))
        assert time.monotonic() < end


async def test_a_call_that_comes_while_its_thread_ends_is_run():
    threads = Threads(idle=0)
    for number in range(3000):
        assert await soon(threads.call("next", functools.partial(abs, number))) == number


@pytest.fixture
def hasty():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_many_loops_and_threads_at_once(gate):
    threads, work, right = Threads(usual=4, patience=FOR_EVER, idle=0.0001), gate(), []
    work.open()

    def working(found):
        return work(), found

    async def calling():
        for _ in range(100):
            calls = [threads.call("call", functools.partial(working, found)) for found in range(4)]
            right.append(await soon(asyncio.gather(*calls)) == [(None, found) for found in range(4)])

    def running():
        runs = (threads.run("run", functools.partial(working, found), FOR_EVER) for found in range(400))
        right.extend(found == (None, number) for number, found in enumerate(runs))

    askers = [threading.Thread(target=lambda: asyncio.run(calling())) for _ in range(4)]
    askers += [threading.Thread(target=running) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert right == [True] * 4 * (100 + 400)
    assert len(work.calls) == 8 * 400
    assert work.most_running <= 4


async def test_what_a_call_raises_is_raised():
    def fails():
        raise TimeoutError("no")

    threads = Threads()
    with pytest.raises(TimeoutError, match="no"):
        await threads.call("fails", fails)
    with pytest.raises(TimeoutError, match="no"):
        threads.run("fails", fails, 20)
    assert await threads.call("next", lambda: 3) == 3


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
async def test_an_error_that_would_steer_the_loop_is_wrapped(error):
    def fails():
        raise error

    threads = Threads()
    with pytest.raises(RuntimeError, match=type(error).__name__) as caught:
        await soon(threads.call("fails", fails))
    assert caught.value.__cause__ is error
    with pytest.raises(RuntimeError, match=type(error).__name__):
        threads.run("fails", fails, 20)
    assert await threads.call("next", lambda: 3) == 3


async def test_a_cancelled_call(gate):
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    threads, slow, waited = Threads(usual=1, patience=FOR_EVER), gate("late"), gate()
    waited.open()
    running, waiting = threads.call("running", slow), threads.call("waiting", waited)
    await slow.entered()
    running.cancel()
    waiting.cancel()
    slow.open()
    assert await soon(threads.call("next", lambda: "next")) == "next"
    assert not waited.calls
    assert not slow.running
    assert running.cancelled()
    assert waiting.cancelled()
    assert not complaints


@pytest.mark.parametrize("usual", [0, 1])
async def test_a_run_that_takes_too_long_goes_on(gate, usual):
    """Also if its time is over before its patience is."""
    threads, slow = Threads(usual, patience=FOR_EVER), gate()
    with pytest.raises(TimeoutError, match=r"asking hasn't returned after 0\.01 s"):
        threads.run("asking", slow, 0.01)
    await slow.entered()


def test_there_is_no_longest_run():
    assert not Threads().run("asking", lambda: threading.Event().wait(0.05), float("inf"))


async def test_without_any_thread_a_call_fails(out_of_threads):
    threads = Threads()
    with out_of_threads():
        with pytest.raises(NoThread, match=r"no thread left for call: .* threads of Python; RLIMIT_NPROC of uid "):
            await threads.call("call", name)
        with pytest.raises(NoThread, match="no thread left for run: "):
            threads.run("run", name, 20)
    assert await threads.call("next", name) == "next"


@pytest.mark.parametrize("usual", [1, 2])
async def test_without_new_threads_the_old_ones_serve(out_of_threads, gate, usual):
    threads, slow = Threads(usual, patience=1), gate()  # MOST_REFUSED of them leave the old one its time
    running = threads.call("slow", slow)
    await slow.entered()
    with out_of_threads():
        waiting = threads.call("waiting", name)
        with pytest.raises(TimeoutError):
            threads.run("waiting", name, 0.05)
        slow.open()
        assert await soon(waiting) == "waiting"
    await running


@in_virtual_time
async def test_a_call_gets_a_thread_once_there_is_one(out_of_threads, gate):
    threads, hung, begun = Threads(usual=1, patience=5), gate(), threading.Event()
    threads.call("hung", hung)
    threads.call("waiting", begun.set)
    with out_of_threads():
        await advance(12)
    await advance(2.9)
    assert not begun.is_set()
    await advance(0.1)
    assert begun.wait(20)


class Kept:
    def method(self):
        return Kept()

    def fails(self):
        raise ValueError


@pytest.mark.parametrize("usual", [0, 1], ids=["waited for a thread", "had one at once"])
async def test_an_idle_thread_keeps_nothing(usual):
    """Nobody but whoever called keeps the function, what it returned, or what it raised."""
    threads = Threads(usual, patience=0.01)
    gc.collect()
    gc.disable()
    try:
        driver = Kept()
        results = [await threads.call("a method", driver.method), threads.run("a method", driver.method, 20)]
        with contextlib.suppress(ValueError):
            await threads.call("fails", driver.fails)
        with contextlib.suppress(ValueError):
            threads.run("fails", driver.fails, 20)
        gone = [weakref.ref(kept) for kept in (driver, *results)]
        del driver, results
        await until(lambda: not any(kept() for kept in gone))
    finally:
        gc.enable()


async def test_a_call_that_waited_is_forgotten(gate):
    threads, slow = Threads(usual=1, patience=FOR_EVER), gate()
    threads.call("slow", slow)
    waiting = threads.call("waiting", Kept)
    slow.open()
    kept = weakref.ref(await soon(waiting))
    del waiting
    await until(lambda: not kept())


class Shown:
    """A driver's object, whose repr may hang."""

    def __init__(self):
        self.shown = 0

    def __repr__(self):
        self.shown += 1
        return "it"

    def method(self):
        return 1


async def test_a_loop_that_is_debugged_shows_no_object_of_a_job(out_of_threads, gate, caplog):
    loop, threads, slow, driver = asyncio.get_running_loop(), Threads(usual=1, patience=0.05), gate(), Shown()
    threads.call("slow", slow)
    await slow.entered()
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    try:
        with out_of_threads():
            waits = threads.call("waits", driver.method)
            await until(lambda: any("_start_later" in text for text in caplog.messages))
    finally:
        loop.set_debug(False)
    slow.open()
    assert (await soon(waits), driver.shown) == (1, 0)


class ClosesBadly:
    def __init__(self, work, closing):
        self.work, self.closing = work, closing

    def __call__(self):
        self.work()

    def __del__(self):
        self.closing()


async def test_a_thread_on_which_a_finaliser_hangs_is_not_free(gate):
    threads, work, closing = Threads(usual=1, patience=0.01, idle=3600), gate(), gate()
    threads.call("closes badly", ClosesBadly(work, closing))
    work.open()  # not before: the thread's reference is the last one
    await closing.entered()
    assert await soon(threads.call("next", lambda: 3)) == 3


async def test_a_result_for_a_closed_loop_is_dropped(gate, recwarn):
    threads, slow, kept = Threads(), gate(), []

    def outlives():
        slow()
        result = Kept()
        kept.append(weakref.ref(result))
        return result

    async def main():
        threads.call("outlives", outlives)
        await slow.entered()

    other = threading.Thread(target=lambda: asyncio.run(main()))
    other.start()
    other.join()
    slow.open()
    await until(lambda: kept and not kept[0]())
    assert await soon(threads.call("next", name)) == "next"
    assert not [warning for warning in recwarn if warning.category is not ResourceWarning]  # of other tests


@pytest.mark.parametrize(
    "hanging",
    [
        "async def main():\n    threads.call('c', hang)\n    begun.wait()\nasyncio.run(main())\n",
        "try:\n    threads.run('c', hang, 0.1)\nexcept TimeoutError:\n    begun.wait()\n",
    ],
    ids=["call", "run"],
)
def test_a_hung_call_lets_the_interpreter_exit(hanging):
    program = (
        "import asyncio, threading\n"
        "from dpgateway.kit.threads import Threads\n"
        "threads, begun = Threads(), threading.Event()\n"
        "threads.run('idle now', lambda: None, 5)\n"
        "def hang():\n"
        "    begun.set()\n"
        "    threading.Event().wait()\n"
    )
    assert subprocess.run([sys.executable, "-c", program + hanging], timeout=60, check=False).returncode == 0

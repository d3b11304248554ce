import asyncio
import itertools
import sys
import threading
import time
from typing import Any, TypeVarTuple

import pytest
import uvloop

from dpgateway import Device, DriverError
from dpgateway.drivers.listing import Fitting, ListLane
from dpgateway.kit.call_stats import CallStats
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from tests.support.resources import NoOptions, configured, scripted
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import turns, until

A, B = Device("a"), Device("b")
NEVER = 3600
Arguments = TypeVarTuple("Arguments")


class Heard:
    def __init__(self):
        self.taken, self.failures = [], []


class Lane:
    """A list lane that asks ``devices`` until the test ends."""

    def __init__(self, log):
        self.heard, self._log, self._tasks = Heard(), log, []
        self.stats = CallStats()

    def start(self, devices, *, deadline=10.0, refresh=NEVER):
        self.config = Observable(configured(timeouts={"list": deadline}, refresh=refresh))
        self.lane = ListLane(self.config, Threads(), self._log)
        driver = type("Driver", (), {"devices": staticmethod(devices)})()
        run = self.lane.run(driver, Fitting(None, self.config), self.stats, self._hear)
        self._tasks.append(asyncio.ensure_future(run))

    def _hear(self, answer):
        (self.heard.failures if isinstance(answer, str) else self.heard.taken).append(answer)

    async def end(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@pytest.fixture
async def lane(log):
    lane = Lane(log)
    yield lane
    await lane.end()


async def test_the_driver_is_asked_at_the_start(lane):
    lane.start(lambda: [A, B])
    await until(lambda: lane.heard.taken == [(A, B)])


async def test_the_driver_is_asked_anew_every_refresh(lane):
    lists = iter([[A], [A, B]])
    lane.start(lambda: next(lists, [B]), refresh=0.01)
    await until(lambda: lane.heard.taken[:3] == [(A,), (A, B), (B,)])


async def test_changed_asks_again_from_any_thread(lane):
    now = [A]
    lane.start(lambda: list(now))
    await until(lambda: lane.heard.taken)
    now.append(B)
    threading.Thread(target=lane.lane.changed).start()
    await until(lambda: lane.heard.taken[1:] == [(A, B)])


async def test_changes_during_a_call_are_one_more_call(lane, gate):
    slow = gate([A])
    lane.start(slow)
    await slow.entered()
    threads = [threading.Thread(target=lambda: [lane.lane.changed() for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    await turns()
    slow.open()
    await until(lambda: len(lane.heard.taken) == 2)
    await turns()
    assert len(slow.calls) == 2


async def test_a_change_during_the_first_list(lane, gate):
    slow, count = gate(), itertools.count()

    def devices():
        slow()
        return [Device(f"d{next(count)}")]

    lane.start(devices)
    await slow.entered()
    lane.lane.changed()
    slow.open()
    await until(lambda: lane.heard.taken == [(Device("d0"),), (Device("d1"),)])


def test_many_changes_are_one_callback(log):
    class Counting(asyncio.SelectorEventLoop):
        callbacks = 0

        def call_soon_threadsafe(self, callback: Any, *args: *Arguments, context: Any = None) -> asyncio.Handle:
            self.callbacks += 1
            return super().call_soon_threadsafe(callback, *args, context=context)

    def announce(lane):
        for _ in range(10_000):
            lane.changed()

    async def main(loop):
        lane = ListLane(Observable(configured()), Threads(), log)
        for count in (1, 2):
            thread = threading.Thread(target=announce, args=[lane])
            thread.start()
            thread.join()  # which keeps the loop busy
            assert loop.callbacks == count
            await turns()  # from now on an announcement is news again

    with asyncio.Runner(loop_factory=Counting) as runner:
        runner.run(main(runner.get_loop()))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_change_after_the_loop_closed(log, loop):
    async def make():
        return ListLane(Observable(configured()), Threads(), log)

    factory = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[loop]
    with asyncio.Runner(loop_factory=factory) as runner:
        lane = runner.run(make())
    lane.changed()
    lane.changed()


async def test_never_two_calls_at_once(lane, gate):
    slow = gate([A])
    lane.start(slow, deadline=0.01, refresh=0.01)
    await until(lambda: lane.heard.failures)
    await slow.entered()
    for _ in range(5):
        lane.lane.changed()
        await turns()
    assert len(slow.calls) == 1
    slow.open()
    await until(lambda: len(lane.heard.taken) > 2)
    assert slow.most_running == 1


async def test_a_late_list_is_taken(lane, gate, records):
    slow = gate([A])
    lane.start(slow, deadline=0.02)
    await until(lambda: lane.heard.failures)
    assert lane.heard.failures == ["the driver hasn't answered for 0.02 s"]
    assert lane.heard.taken == []
    slow.open()
    await until(lambda: lane.heard.taken == [(A,)])
    assert [text[:33] for text in records.texts()] == [
        "every device is Unhealthy: the dr",
        "the driver lists its devices agai",
    ]


WRONG = {
    "raises": (lambda: 1 / 0, "devices() raised ZeroDivisionError: division by zero"),
    "exits": (lambda: sys.exit(3), "SystemExit: 3"),
    "says why": (lambda: (_ for _ in ()).throw(DriverError("no bus")), "the driver failed: no bus"),
    "returns nothing": (lambda: None, "devices() returned None, expected devices"),
    "returns ids": (lambda: ["a"], "'a' among its devices, expected a Device"),
    "repeats an id": (lambda: [A, A], "listed the id 'a' twice"),
    "makes wrong devices": (lambda: [Device("")], "ValueError: device id: expected a non-empty string"),
    "never ends": (lambda: itertools.repeat(A), "more than 200000 devices"),
    "fails half way": (lambda: (Device("a") if n else 1 / 0 for n in (1, 0)), "ZeroDivisionError"),
}


@pytest.mark.parametrize(("devices", "said"), WRONG.values(), ids=WRONG)
async def test_failures_are_told_and_retried(lane, records, devices, said):
    answers = iter([devices])

    def first_wrong():
        return next(answers, lambda: [B])()

    lane.start(first_wrong, refresh=0.01)
    await until(lambda: lane.heard.taken[:1] == [(B,)])
    (reason,) = lane.heard.failures
    assert said in reason
    assert said in records.texts()[0]


async def test_each_call_is_counted_once(lane, gate):
    slow, answers = gate([A, B]), iter([DriverError("worn out"), ZeroDivisionError(), [A]])

    def devices():
        answer = next(answers, None)
        if isinstance(answer, Exception):
            raise answer
        return answer or slow()

    counted: dict[str, int] = {}
    lane.start(devices)
    for outcome in ("error", "fault", "success", "timeout"):
        counted[outcome] = 1
        await until(lambda: lane.stats.read().get("devices") and lane.stats.read()["devices"].outcomes == counted)
        if outcome == "success":
            lane.config.set(configured(timeouts={"list": 0.05}, refresh=NEVER))
        lane.lane.changed()
    lane.config.set(configured(refresh=NEVER))  # from the next call on, which has time
    slow.open()
    await until(lambda: lane.heard.taken == [(A,), (A, B), (A, B)])  # the late one, and the one after it
    assert lane.stats.read()["devices"].outcomes == {**counted, "success": 2}


async def test_the_same_failure_is_logged_once(lane, records):
    lane.start(lambda: 1 / 0, refresh=0.001)
    await until(lambda: len(lane.heard.failures) > 20)
    assert len(records.texts()) == 1
    assert records.records[0].exception.endswith("ZeroDivisionError: division by zero")


async def test_a_contract_error_of_devices_has_no_traceback(lane, records):
    def fails():
        raise DriverError("no power")

    lane.start(fails)
    await until(lambda: lane.heard.failures)
    (record,) = records.records
    assert record.getMessage() == "every device is Unhealthy: the driver failed: no power"
    assert (record.reason, record.method, record.exception) == ("the driver failed: no power", "devices", None)


async def test_a_hanging_str_delays_only_its_driver(lane, gate):
    hangs = gate("told at last")

    class Mute(DriverError):
        def __str__(self):
            return hangs()

    def fails():
        raise Mute

    lane.start(fails, deadline=0.02)
    await until(lambda: lane.heard.failures == ["the driver hasn't answered for 0.02 s"])
    hangs.open()
    await until(lambda: lane.heard.failures[1:] == ["the driver failed: told at last"])


async def test_retries_have_no_end(lane):
    answers = itertools.chain([False] * 1100, itertools.repeat([A]))

    def fails():
        if not (answer := next(answers)):
            raise DriverError("not yet")
        return answer

    lane.start(fails, refresh=0.00001)
    await until(lambda: lane.heard.taken)
    assert len(lane.heard.failures) == 1100


async def test_a_restless_driver_is_slowed_down(lane):
    def devices():
        lane.lane.changed()
        return [A]

    began = time.monotonic()
    lane.start(devices)
    await until(lambda: len(lane.heard.taken) == 9)
    assert time.monotonic() - began > 0.01 * (1 + 2 + 4 + 8)


class AtOnce(Threads):
    """Calls return before anything else happens, so that nothing but the lane's own pauses takes time."""

    def call(self, name, function, seconds=0.0):
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        return future


async def asked_at(log, devices, seconds, refresh):
    """The seconds at which the driver is asked: ``devices`` gets the announcements and the number of the call."""
    loop, times, config = asyncio.get_running_loop(), [], Observable(configured(refresh=refresh))
    lane = ListLane(config, AtOnce(), log)

    def ask():
        times.append(round(loop.time() - began, 3))
        return devices(lane, len(times))

    driver: Any = scripted(devices=ask)(NoOptions(), None)
    began = loop.time()
    listening = asyncio.ensure_future(lane.run(driver, Fitting(None, config), CallStats(), lambda _: None))
    await advance(seconds)
    listening.cancel()
    await asyncio.wait([listening])
    return times


def fails(number):
    if number in {1, 2, 3, 4, 6}:
        raise DriverError("no bus")
    return False


@pytest.mark.parametrize(
    ("changes", "seconds", "refresh", "times"),
    [
        (lambda number: number <= 3, 50, 40, [0, 0, 0, 0, 40]),
        (lambda number: number != 3, 40.005, 40, [0, 0, 0, 40, 40, 40, 40]),
        (fails, 30, 6, [0, 1, 3, 7, 13, 19, 20, 26]),
    ],
    ids=["three changes are free", "a quiet list resets the rests", "pauses of retries double up to refresh"],
)
@in_virtual_time
async def test_when_the_driver_is_asked(log, changes, seconds, refresh, times):
    """``changes``: whether it announces a change in its call of this number."""

    def devices(lane, number):
        if changes(number):
            lane.changed()
        return [A]

    assert await asked_at(log, devices, seconds, refresh) == times


@in_virtual_time
async def test_an_outage_is_told_with_its_length(log, records):
    """The driver is asked after 0, 1, 3, 7 and 13 s, and fails four times."""
    await asked_at(log, lambda _, number: fails(number) or [A], 15, 6)
    assert records.texts()[-1] == "the driver lists its devices again, after 13.0 s"
    assert records.records[-1].seconds == pytest.approx(13.0, abs=0.1)


@in_virtual_time
async def test_rests_double_up_to_a_second(log):
    def devices(lane, _):
        lane.changed()
        return [A]

    times = await asked_at(log, devices, 4, refresh=40)
    assert times[:4] == [0, 0, 0, 0]
    rests = [round(later - earlier, 3) for earlier, later in itertools.pairwise(times[3:])]
    assert rests == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1]

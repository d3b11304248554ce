import asyncio
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dpgateway import Allocation, Device, DeviceNode, DriverError, Health, Mount
from dpgateway.deviceplugin.api import unfit
from dpgateway.drivers.running import CLOSING, CLOSING_LAST, RunningDriver
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from tests.support.resources import Scripted, configured, scripted
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import turns, until

A, B = Device("a"), Device("b")


class Running:
    """A driver that runs until the test ends."""

    def __init__(self, config, log):
        self.config = Observable(config)
        self.driver = RunningDriver(self.config, "node-a", Threads(), log)
        self.task = asyncio.ensure_future(self.driver.run())

    @property
    def said(self):
        return self.driver.state.value

    @property
    def lanes(self):
        assert self.driver.lanes is not None
        return self.driver.lanes

    async def listed(self):
        await until(lambda: self.said.devices is not None and not self.said.failure)

    async def end(self, *, hurried=True):
        """``hurried``: close() has half a second only."""
        if hurried:
            self.driver.hurry()
        self.task.cancel()
        await asyncio.wait([self.task])


def late(*_):
    raise AssertionError("it answered in time")


@pytest.fixture
async def run(log):
    running = []

    def make(driver_class=None, **config):
        running.append(Running(configured(driver_class=driver_class, **config), log))
        return running[-1]

    yield make
    for one in running:
        await one.end()


async def test_a_driver_is_made_and_asked_and_can_be_called(run):
    one = run(scripted())
    assert one.driver.lanes is None
    await one.listed()
    assert one.said.devices == (A, B)
    assert (await one.lanes.allocate([A], late)).env == {"GOT": "a"}


async def test_every_state_is_news(run):
    lists = iter([[A], [A, B]])
    one = run(scripted(devices=lambda: next(lists, [B])), refresh=0.01)
    seen = -1
    heard: list[tuple[Device, ...]] = []
    while heard[-1:] != [(B,)]:
        seen = await one.driver.state.wait(seen)
        heard.append(one.said.devices)
    assert [said for said in dict.fromkeys(heard) if said] == [(A,), (A, B), (B,)]


async def test_a_driver_gets_its_options_and_a_context(run):
    made = []

    class Curious(Scripted):
        def __init__(self, options, context):
            made.append((options, context))
            super().__init__(options, context)

    one = run(Curious)
    await one.listed()
    ((options, context),) = made
    assert options == configured().options
    assert (context.resource, context.node_name) == ("example.com/thing", "node-a")


async def test_a_failing_init_is_logged_once_and_retried(run, records):
    answers = [ZeroDivisionError("no bus"), None]

    class Shy(Scripted):
        def __init__(self, options, context):
            if error := answers.pop(0):
                raise error

    one = run(Shy)
    await one.listed()
    assert [text for text in records.texts() if "failed" in text] == [
        "the resource failed: the driver scripted isn't running: __init__() raised ZeroDivisionError: no bus"
    ]


@pytest.mark.parametrize("error", [SystemExit(1), BaseExceptionGroup("x", [GeneratorExit()]), DriverError("no")])
async def test_whatever_a_driver_raises_its_task_goes_on(run, records, error):
    class Bad(Scripted):
        def __init__(self, options, context):
            raise error

    one = run(Bad)
    await until(records.texts)
    assert not one.task.done()
    assert "isn't running: " in records.texts()[0]


async def test_a_missing_driver_fails_its_resource(run, records):
    run(None)
    await until(records.texts)
    assert records.texts() == ["the resource failed: the driver scripted isn't running: it isn't installed"]


async def test_a_late_init_is_overdue_and_taken(run, gate):
    slow = gate()

    class Slow(Scripted):
        def __init__(self, options, context):
            slow()

    one = run(Slow, timeouts={"list": 0.02})
    await until(lambda: one.said.overdue and one.said.failure)
    assert one.driver.lanes is None
    slow.open()
    await one.listed()


async def test_a_late_init_is_logged_once(run, gate, records):
    slow = gate()

    class Slow(Scripted):
        def __init__(self, options, context):
            slow()

    one = run(Slow, timeouts={"list": 0.02})
    failed = "the resource failed: the driver scripted hasn't been made within 0.02 s"
    await until(lambda: records.texts() == [failed])
    slow.open()
    await one.listed()
    made = [text for text in records.texts() if "made" in text]  # its list may be late, too
    assert made == [failed, "the driver has been made, after its deadline"]


async def test_a_late_import_is_overdue_and_taken(run, gate, records):
    load = gate(configured(driver_class=scripted()))
    one = run(load=load, timeouts={"list": 0.02}, failure="it isn't used")
    await until(lambda: one.said.overdue and "hasn't been loaded" in one.said.failure)
    load.open()
    await one.listed()
    loaded = [text for text in records.texts() if "loaded" in text]  # its list may be late, too
    assert loaded == [
        "the resource failed: the driver scripted hasn't been loaded within 0.02 s",
        "the driver has been loaded, after its deadline",
    ]


async def test_a_late_import_that_fails(run, records):
    one = run(load=lambda: configured(failure="its options are wrong"))
    await until(lambda: one.said.failure)
    assert records.texts() == ["the resource failed: the driver scripted isn't running: its options are wrong"]


async def test_a_resource_stops_while_its_driver_is_loaded(run, gate):
    one = run(load=(slow := gate()))
    await slow.entered()
    async with asyncio.timeout(60):
        await one.end()


async def test_a_hung_list_keeps_the_last_one(run, gate):
    slow, context = gate([A]), []
    lists = iter([lambda: [A, B], slow])

    class Slow(Scripted):
        def __init__(self, options, given):
            context.append(given)

        def devices(self):
            return next(lists)()

    one = run(Slow, timeouts={"list": 0.05})
    await one.listed()
    context[0].changed()
    await until(lambda: one.said.failure == "the driver hasn't answered for 0.05 s")
    assert one.said.devices == (A, B)
    slow.open()
    await until(lambda: one.said.devices == (A,))
    assert not one.said.failure


async def test_hung_calls_do_not_delay_lists(run, gate):
    hangs, context = gate(), []

    class Stuck(Scripted):
        def __init__(self, options, given):
            context.append(given)
            self.count = 0

        def devices(self):
            self.count += 1
            return [Device(f"d{number}") for number in range(self.count)]

        def allocate(self, devices):
            return hangs(devices)

        def prepare(self, devices):
            return hangs(devices)

    one = run(Stuck, timeouts={"allocate": 0.02, "prepare": 0.02})
    await one.listed()
    for call in (lambda devices: one.lanes.allocate(devices, None), one.lanes.prepare):
        with pytest.raises(Exception, match="hasn't"):
            await call([Device("d0")])
    context[0].changed()
    await until(lambda: Device("d1") in one.said.devices)


class OnItsThreads(Device):
    """Its attributes hang whoever reads them on the event loop's thread."""

    def __init__(self, id_):
        object.__setattr__(self, "values", {"id": id_, "health": Health.healthy(), "numa_nodes": ()})

    def __getattribute__(self, name):
        if name in {"id", "health", "numa_nodes"}:
            if threading.current_thread() is threading.main_thread():
                raise SystemExit(name)
            return self.values[name]
        return super().__getattribute__(name)


async def test_own_devices_are_read_on_the_drivers_thread(run):
    own = OnItsThreads("a"), OnItsThreads("b")
    asked: list[object] = []

    class Driver(Scripted):
        def devices(self):
            return own

        def allocate(self, devices):
            asked.append(devices)
            return Allocation()

        def prefer(self, available, must_include, size):
            asked.append(available)
            return [available[1]]

        def prepare(self, devices):
            asked.append(devices)

        release = prepare

    one = run(Driver, timeouts={"prefer": 20})
    await one.listed()
    a, b = one.said.devices
    assert (a.id, b.id) == ("a", "b")
    assert await one.lanes.prefer([a, b], [], 1) == (b,)
    await one.lanes.allocate([a], late)
    await one.lanes.prepare([a])
    one.lanes.release([b], tuple)
    await until(lambda: len(asked) == 4)
    assert asked == [own, own[:1], own[:1], own[1:]]


async def test_a_driver_that_is_made_in_vain_is_closed(run, gate):
    slow, closed = gate(), threading.Event()

    class Slow(Scripted):
        def __init__(self, options, context):
            slow()

        def close(self):
            closed.set()

    one = run(Slow)
    await slow.entered()
    await one.end()
    slow.open()
    await until(closed.is_set)


async def test_nobody_asks_a_driver_that_closes(run, gate):
    closing = gate()

    class Odd(Scripted):
        made = 0

        def __init__(self, options, context):
            Odd.made += 1

        @property
        def prefer(self):
            if Odd.made == 1:
                raise LookupError("not this time")

        def close(self):
            closing()

    one = run(Odd)
    await closing.entered()
    assert one.driver.lanes is None
    closing.open()


async def test_the_last_error_is_remembered(run):
    broken = threading.Event()
    broken.set()

    def devices():
        if broken.is_set():
            raise DriverError("no bus")
        return [A]

    one = run(scripted(devices=devices), refresh=0.01)
    await until(lambda: one.said.failure)
    failed = one.said
    broken.clear()
    await one.listed()
    assert (one.said.failure, one.said.error, one.said.erred) == ("", failed.failure, failed.erred)
    assert failed.erred is not None


async def test_without_its_driver_nothing_can_be_called(run):
    closed = threading.Event()
    one = run(scripted(close=closed.set))
    await one.listed()
    lanes = one.lanes
    await one.end(hurried=False)
    assert closed.is_set()
    assert one.driver.lanes is None
    with pytest.raises(DriverError, match="the driver ended"):
        await lanes.prepare([A])


async def test_queued_allocates_end_with_their_driver(run: Callable[..., Running], gate: Callable[..., Any]) -> None:
    slow, closing, asked = gate(Allocation()), gate(), list[str]()

    def allocate(devices: Sequence[Device]) -> object:
        asked.append(devices[0].id)
        return slow()

    one = run(scripted(devices=lambda: [A, B], allocate=allocate, close=closing))
    await one.listed()
    lanes = one.lanes
    first = asyncio.ensure_future(lanes.allocate([A], None))
    await slow.entered()
    second = asyncio.ensure_future(lanes.allocate([B], None))
    await turns()
    one.task.cancel()
    await closing.entered()
    slow.open()
    assert await first == Allocation()
    with pytest.raises(DriverError, match="device b: driver scripted: the driver ended"):
        await second
    assert asked == ["a"]
    closing.open()


async def test_a_failed_driver_is_closed_before_the_next(run):
    life = []

    class Odd(Scripted):
        def __init__(self, options, context):
            life.append("made")

        def close(self):
            life.append("closed")

        @property
        def prefer(self):
            if len(life) == 1:
                raise LookupError("not this time")
            return lambda available, must, size: available[:size]

    one = run(Odd)
    await one.listed()
    assert life == ["made", "closed", "made"]


class Hanging(Threads):
    """What is called answers at once, but one of a driver's calls never does."""

    def __init__(self, hangs):
        super().__init__()
        self._hangs = hangs

    def call(self, name, function, seconds=math.inf):
        future = asyncio.get_running_loop().create_future()
        if not name.endswith(f" {self._hangs}"):
            try:
                future.set_result(function())
            except DriverError as error:
                future.set_exception(error)
        return future


@pytest.mark.parametrize("hangs", ["list", "make", "nothing"])
@in_virtual_time
async def test_the_first_list_is_due_at_the_deadline(log, hangs):
    """Its failures have pauses of 1, 2, 4 seconds between them, and each of its calls a deadline of its own."""

    def fails():
        raise DriverError("no bus")

    config = configured(driver_class=scripted(devices=fails), timeouts={"list": 1.5})
    driver = RunningDriver(Observable(config), "node-a", Hanging(hangs), log)
    running, began, seen = asyncio.ensure_future(driver.run()), asyncio.get_running_loop().time(), 0
    while not driver.state.value.overdue:
        seen = await driver.state.wait(seen)
    assert asyncio.get_running_loop().time() - began == 1.5
    assert driver.state.value.failure
    assert driver.state.value.devices is None
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("ends", ["with the gateway", "alone", "alone, and the gateway ends meanwhile"])
@in_virtual_time
async def test_close_has_less_time_at_the_end(log, records, ends):
    driver = RunningDriver(
        Observable(configured(driver_class=scripted(close=lambda: None))), "node-a", Hanging("close"), log
    )
    running = asyncio.ensure_future(driver.run())
    await driver.state.wait(1)
    if ends == "with the gateway":
        driver.hurry()
    running.cancel()
    if ends.endswith("meanwhile"):
        await advance(1)
        driver.hurry()
    await asyncio.wait([running])
    seconds = {"with the gateway": CLOSING_LAST, "alone": CLOSING}.get(ends, 1 + CLOSING_LAST)
    assert records.texts() == [f"the driver hasn't closed: close() hasn't answered for {seconds:g} s"]


async def test_what_close_raises_is_logged(run, records):
    one = run(scripted(close=lambda: 1 / 0))
    await one.listed()
    await one.end(hurried=False)
    assert records.texts() == ["the driver failed: close() raised ZeroDivisionError: division by zero"]


async def test_close_is_called_while_others_hang(run, gate):
    hangs, closed = gate([]), threading.Event()
    one = run(scripted(devices=hangs, close=closed.set))
    await hangs.entered()
    await one.end(hurried=False)
    assert closed.is_set()


async def test_another_refresh_counts_at_once(run):
    asked = itertools.count(1)
    driver = scripted(devices=lambda: [A, Device(f"b{next(asked)}")])
    one = run(driver, refresh=3600)
    await one.listed()
    one.config.set(configured(driver_class=driver, refresh=0.001))
    await until(lambda: int(one.said.devices[1].id[1:]) > 3)


@pytest.mark.parametrize("previews", [False, True])
async def test_another_env_asks_only_drivers_with_preview(run, previews):
    asked = itertools.count(1)
    methods = {"preview": lambda _: Allocation()} if previews else {}
    driver = scripted(devices=lambda: [A, Device(f"b{next(asked)}")], **methods)
    one = run(driver, refresh=3600)
    await one.listed()
    one.config.set(configured(driver_class=driver, refresh=3600, env={"A": "1"}, timeouts={"allocate": 5}))
    await turns()
    await until(lambda: one.said.devices == (A, Device(f"b{1 + previews}")))


async def test_other_mounts_are_judged_at_once(run):
    node = Allocation(device_nodes=(DeviceNode("/dev/a"),))
    one = run(scripted(devices=lambda: [A], preview=lambda _: node), mounts=(Mount("/etc", "/dev/a"),))
    one.driver.inform(frozenset, unfit)
    await one.listed()
    assert "mounts[0].container_path is '/dev/a'" in str(one.said.devices[0].health.reason)
    one.config.set(configured(mounts=(Mount("/etc", "/x"),)))
    await until(lambda: one.said.devices == (A,))
